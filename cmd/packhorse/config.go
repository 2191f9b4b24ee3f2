package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// configFile resolves flags from the file that --config names. Keys are the names of flags, of any
// subcommand, so that several commands can share a file; a key that is no flag is an error.
//
// What is wrong with the file is in err, and not an error of the parser: that would put it down to
// whichever flag it looks up.
type configFile struct {
	loaded bool
	path   string
	values map[string]configValue
	errs   []error // all that is wrong with the file itself
	err    error   // the first of them, or of a value
}

// configValue is the value of a key, or its list of values.
type configValue struct {
	line   int
	values []string
}

// Resolve returns the file's value of a flag that neither the command line nor the environment
// gives.
func (c *configFile) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !c.loaded {
		c.loaded = true
		if c.errs = c.load(ctx); len(c.errs) > 0 {
			c.err = c.errs[0]
		}
	}
	given, ok := c.values[flag.Name]
	if c.err != nil || !ok || environmentOf(flag) != "" || isConfigCheck(ctx) {
		return nil, nil
	}
	value, err := given.text(flag)
	if err != nil {
		c.err = c.wrong(given.line, "%s %v", flag.Name, err)
		return nil, nil
	}
	if enum := enumOf(flag.Value); enum != nil {
		for _, one := range given.values {
			if !slices.Contains(enum, one) {
				c.err = c.wrong(given.line, "%s must be one of %s, but is %q", flag.Name, strings.Join(enum, ", "), one)
				return nil, nil
			}
		}
	}
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := flag.Parse(scan, reflect.New(flag.Target.Type()).Elem()); err != nil {
		c.err = c.wrong(given.line, "%s", strings.TrimPrefix(err.Error(), "--"))
		return nil, nil
	}
	return value, nil
}

// text returns what a key says as a flag takes it.
func (v configValue) text(flag *kong.Flag) (string, error) {
	switch {
	case flag.IsSlice():
		return kong.JoinEscaped(v.values, flag.Tag.Sep), nil
	case len(v.values) != 1:
		return "", errors.New("takes one value, and no list")
	}
	return v.values[0], nil
}

// Validate has nothing to do.
func (c *configFile) Validate(*kong.Application) error { return nil }

// wrong is the error for a line of the file.
func (c *configFile) wrong(line int, format string, args ...any) error {
	return &usageError{fmt.Sprintf("configuration file %s:%d: %s", c.path, line, fmt.Sprintf(format, args...))}
}

// environmentOf returns the environment variable that gives a flag, or "".
func environmentOf(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// load reads the file, and returns all that is wrong with it.
func (c *configFile) load(ctx *kong.Context) []error {
	for _, flag := range ctx.Model.Flags {
		if flag.Name == "config" {
			c.path, _ = ctx.FlagValue(flag).(string)
		}
	}
	if c.path == "" {
		return nil
	}
	if err := checkFile(c.path); err != nil {
		return []error{&usageError{fmt.Sprintf("--config: %v", err)}}
	}
	data, err := os.ReadFile(c.path)
	if err != nil {
		return []error{&usageError{fmt.Sprintf("--config: %v", err)}}
	}
	return c.parse(data, flagNames(ctx.Model.Node))
}

// yamlLine is where the YAML library says that something is wrong.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse reads the keys of a YAML mapping, each with its value or its list of values. It returns all
// that is wrong with them.
func (c *configFile) parse(data []byte, known map[string]bool) (wrong []error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		line := 1
		if at := yamlLine.FindStringSubmatch(err.Error()); at != nil && at[1] != "" {
			_, _ = fmt.Sscan(at[1], &line) // digits
		}
		return []error{c.wrong(line, "not YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))}
	}
	c.values = make(map[string]configValue)
	if len(document.Content) == 0 {
		return nil // empty
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return []error{c.wrong(root.Line, "expected lines of the form KEY: VALUE, one for each flag")}
	}
	for pair := range slices.Chunk(root.Content, 2) {
		key, value := pair[0], pair[1]
		if before, again := c.values[key.Value]; again {
			wrong = append(wrong, c.wrong(key.Line, "key %q is given twice, first in line %d", key.Value, before.line))
			continue
		}
		if !known[key.Value] {
			wrong = append(wrong, c.wrong(key.Line, "no flag is named %q%s", key.Value,
				didYouMean(key.Value, slices.Sorted(maps.Keys(known)), func(name string) string { return name })))
			continue
		}
		values, err := valuesOf(value)
		if err != nil {
			wrong = append(wrong, c.wrong(value.Line, "%s: %v", key.Value, err))
			continue
		}
		c.values[key.Value] = configValue{line: key.Line, values: values}
	}
	return wrong
}

// valuesOf returns a value as a list of one, or the values of a list.
func valuesOf(node *yaml.Node) ([]string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.ScalarNode:
		return []string{node.Value}, nil
	case yaml.SequenceNode:
		var values []string
		if err := node.Decode(&values); err != nil {
			return nil, errors.New("expected a list of values")
		}
		return values, nil
	default:
		return nil, errors.New("neither a value nor a list")
	}
}

// flagNames returns the names of every flag below node that a configuration file may give.
func flagNames(node *kong.Node) map[string]bool {
	names := make(map[string]bool)
	for _, flag := range node.Flags {
		if flag.Name != "help" && flag.Name != "config" {
			names[flag.Name] = true
		}
	}
	for _, child := range node.Children {
		maps.Copy(names, flagNames(child))
	}
	return names
}
