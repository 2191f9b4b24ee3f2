package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// configCommand groups the subcommands for the configuration of a server.
type configCommand struct {
	Check configCheckCommand `cmd:"" help:"Report everything that would keep serve from starting, or from working as configured. Nothing is opened, changed or created."`
}

// configCheckCommand takes what serve takes, and reports all that is wrong with it.
type configCheckCommand struct {
	serveCommand

	required []string // the names of the flags that serve requires
}

// errReported says that a command has printed what is wrong with what it was given.
var errReported = errors.New("the configuration is wrong")

// BeforeReset keeps the parser from ending at the first value of the environment that is wrong, and
// at the flags that are missing: Run looks for all of these.
func (c *configCheckCommand) BeforeReset(ctx *kong.Context) error { //nolint:unparam // kong's hooks return one
	for _, path := range ctx.Path {
		if path.Flag != nil && path.Flag.Name == "help" { // which shows what serve requires
			return nil
		}
	}
	for _, flag := range ctx.Selected().Flags {
		if flag.Required {
			c.required = append(c.required, flag.Name)
		}
		flag.Tag.Envs, flag.Required = nil, false
	}
	return nil
}

// isConfigCheck reports whether the selected command is config check.
func isConfigCheck(ctx *kong.Context) bool {
	if ctx == nil || ctx.Selected() == nil {
		return false
	}
	_, ok := reflect.TypeAssert[*configCheckCommand](ctx.Selected().Target.Addr())
	return ok
}

// findings are what is wrong, and what is odd and keeps no server from working.
type findings struct {
	wrong, odd []string
}

func (f *findings) add(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// fail adds an error, unless it is nil.
func (f *findings) fail(err error) {
	if err != nil {
		f.wrong = append(f.wrong, oneLine(err))
	}
}

func (f *findings) warn(format string, args ...any) {
	f.odd = append(f.odd, fmt.Sprintf(format, args...))
}

// Run prints all findings, a line each. Errors: [errReported].
func (c *configCheckCommand) Run(ctx context.Context, parsed *kong.Context, config *configFile, to streams) error {
	var found findings
	bad := c.fill(parsed, config, &found)
	running := c.look(ctx, bad, &found)
	for _, text := range found.wrong {
		to.complain("%s", text)
	}
	for _, text := range found.odd {
		to.complain("warning: %s", text)
	}
	if len(found.wrong) > 0 {
		return errReported
	}
	if running {
		return to.printf("the configuration is good; a server has %s open now, so its addresses were not tried\n", c.Data)
	}
	return to.printf("the configuration is good\n")
}

// fill gives the flags that are not on the command line their values from the environment and the
// configuration file, and checks every value. It returns the names of the flags with a wrong one.
func (c *configCheckCommand) fill(parsed *kong.Context, config *configFile, found *findings) (bad map[string]bool) {
	bad = make(map[string]bool)
	for _, err := range config.errs {
		found.fail(err)
	}
	for _, flag := range parsed.Selected().Flags {
		if flag.Name == "help" {
			continue
		}
		source := sourceOf(parsed, flag, config)
		given, err := fillFlag(parsed, flag, config)
		if err != nil {
			bad[flag.Name] = true
			found.add("--%s: %s%s", flag.Name, strings.TrimPrefix(oneLine(err), "--"+flag.Name+": "), source)
			continue
		}
		if !given {
			if slices.Contains(c.required, flag.Name) {
				bad[flag.Name] = true
				found.add("missing flags: %s", flag.Summary())
			}
			continue
		}
		if err := checkValue(flag.Value, flag.Target.Interface()); err != nil {
			bad[flag.Name] = true
			found.add("--%s: %v%s", flag.Name, err, source)
		}
	}
	return bad
}

// fillFlag sets the target of a flag, and reports whether anything gives it a value.
func fillFlag(parsed *kong.Context, flag *kong.Flag, config *configFile) (given bool, err error) {
	if isTyped(parsed, flag) {
		return true, nil
	}
	var text string
	if name := environmentOf(flag); name != "" {
		text = os.Getenv(name)
	} else if inFile, ok := config.values[flag.Name]; ok {
		if text, err = inFile.text(flag); err != nil {
			return true, err
		}
	} else {
		return false, nil
	}
	value := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(text, kong.FlagValueToken), value); err != nil {
		return true, err
	}
	for _, one := range valuesIn(value) {
		if enum := enumOf(flag.Value); enum != nil && !slices.Contains(enum, one) {
			return true, fmt.Errorf("must be one of %s, but is %q", strings.Join(enum, ", "), one)
		}
	}
	flag.Target.Set(value)
	return true, nil
}

// valuesIn returns the texts of a flag's value.
func valuesIn(value reflect.Value) []string {
	if list, ok := reflect.TypeAssert[[]string](value); ok {
		return list
	}
	return []string{fmt.Sprint(value.Interface())}
}
