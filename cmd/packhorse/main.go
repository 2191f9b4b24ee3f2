// Command packhorse is the git host: it serves repositories, and has the tools to set a server up
// and to check its store.
//
// Each subcommand has a file of its own; [commandLine] lists them. Every flag can also be given by
// an environment variable and by a key of the configuration file: the command line wins over the
// environment, and that over the file.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"packhorse/api/auth"
	"packhorse/engine/backup"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // the command ran and failed
	exitUsage  = 2 // the command line, environment or configuration file is wrong
)

// commandLine is every subcommand and the flags that all of them take.
type commandLine struct {
	Config string `help:"Configuration file: YAML with one key for each flag." placeholder:"FILE" type:"path" is:"file"`

	Dev        devCommand         `cmd:"" set:"log_level=warn" help:"Serve from a folder prepared for trying out, and print example commands."`
	Serve      serveCommand       `cmd:"" help:"Serve the repositories of organizations."`
	ConfigFile configCommand      `cmd:"" name:"config" help:"Check the configuration of a server."`
	Status     statusCommand      `cmd:"" help:"Show how the running server of a data folder is doing."`
	Org        orgCommand         `cmd:"" help:"Register organizations."`
	Token      tokenCommand       `cmd:"" help:"Sign tokens, and look into them. Without a command: sign."`
	Credential credentialCommand  `cmd:"" help:"Give git a token for each operation, as its credential helper."`
	Repos      reposCommand       `cmd:"" help:"List, show, rename, delete and undelete repositories, and move their default branches: of an organization through its API, or of all as the operator."`
	Import     importCommand      `cmd:"" help:"Bring repositories from folders and other hosts to the running server."`
	Export     exportCommand      `cmd:"" help:"Write a repository of the running server as a bare one that git reads."`
	GC         gcCommand          `cmd:"" name:"gc" help:"Maintain every repository now, through the running server or in a stopped server's folder."`
	Backup     backupCommand      `cmd:"" help:"Make, list, check and remove backups."`
	Restore    restoreCommand     `cmd:"" help:"Restore a backup into a new data folder."`
	Migrate    migrateCommand     `cmd:"" help:"Move the repositories of a stopped server's folder to a database and a bucket that several servers share, or back."`
	Fsck       fsckCommand        `cmd:"" help:"Check every repository and object, through the running server or in a stopped server's folder."`
	Webhooks   webhooksCommand    `cmd:"" help:"Inspect and retry undelivered events."`
	Cluster    clusterCommand     `cmd:"" help:"List the servers that share a database, and the duties of each."`
	Health     healthcheckCommand `cmd:"" name:"healthcheck" help:"Exit with 0 if the server of this machine or container is ready."`
	Completion completionCommand  `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Man        manCommand         `cmd:"" help:"Write the manual, a page for each command."`
	Version    versionCommand     `cmd:"" help:"Print the version."`
}

// streams are the outputs of a subcommand.
type streams struct {
	out    io.Writer // results
	errOut io.Writer // logs and complaints
}

// printf prints a result.
func (to streams) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(to.out, format, args...)
	return err
}

// complain prints a line to errOut. What a terminal would not print as a character is escaped: the
// text may name files, or come from another server. If printing fails, the exit status still shows
// the error.
func (to streams) complain(format string, args ...any) {
	_, _ = fmt.Fprintln(to.errOut, "packhorse: "+escaped(fmt.Sprintf(format, args...)))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal requests an orderly stop; a second one ends the process immediately.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], streams{out: os.Stdout, errOut: os.Stderr}))
}

// run parses the arguments, runs the subcommand, and returns the exit status.
func run(ctx context.Context, args []string, to streams) int {
	var cli commandLine
	status, exited := exitOK, false
	if len(args) == 0 {
		to.complain("expected one of %s; see packhorse --help", strings.Join(commandNames(), ", "))
		return exitUsage
	}
	args = customary(args)
	selected, err := parse(&cli, args, to,
		kong.Exit(func(code int) { status, exited = code, true }), // --help
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(to),
		kong.Bind(reparse(func() (*commandLine, error) {
			var now commandLine
			_, err := parse(&now, args, streams{out: io.Discard, errOut: io.Discard})
			return &now, err
		})),
	)
	if exited {
		return status
	}
	if err != nil {
		to.complain("%s; see %s --help", oneLine(err), commandOf(err, selected))
		return exitUsage
	}
	if selected.Selected().Name != "credential" { // git shows what its helpers say
		warnOfEnvironment(selected.Model.Node, to)
	}
	if err := selected.Run(); errors.Is(err, errReported) {
		return exitUsage
	} else if err != nil {
		text := oneLine(err)
		if more := advice(err); !strings.Contains(text, more) {
			text += more
		}
		to.complain("%s", text)
		if isBadInput(err) {
			return exitUsage
		}
		return exitFailed
	}
	return exitOK
}

// customary returns the arguments that stand here for those that many programs take: help in front
// of a command, and a flag for the version.
func customary(args []string) []string {
	switch args[0] {
	case "help":
		return append(slices.Clone(args[1:]), "--help")
	case "--version":
		return append([]string{"version"}, args[1:]...)
	default:
		return args
	}
}

// commandNames returns the names of the commands, without those below them.
func commandNames() (names []string) {
	for _, command := range commandShapes()[0].children {
		names = append(names, command.name())
	}
	return names
}

// parse fills cli from the arguments, the environment and the configuration file, and checks every
// value. It changes nothing.
func parse(cli *commandLine, args []string, to streams, more ...kong.Option) (*kong.Context, error) {
	config := new(configFile)
	selected, err := newParser(cli, to, append(more, kong.Resolvers(config), kong.Bind(config))...).Parse(args)
	if isConfigCheck(selected) {
		return selected, err
	}
	if config.err != nil {
		return selected, config.err
	}
	if err != nil || selected == nil || selected.Selected() == nil || cli.Credential.isSilent() {
		return selected, err
	}
	return selected, checkValues(selected, config)
}

// oneLine is the text of an error on one line.
func oneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}

// isBadInput reports whether an error is due to what the operator has given: flags, environment,
// configuration, and the files, folders and addresses that they name.
func isBadInput(err error) bool {
	if _, ok := errors.AsType[*usageError](err); ok {
		return true
	}
	for _, known := range []error{
		auth.ErrKey, auth.ErrFolder, auth.ErrOrgConfig, errInUse, backup.ErrNone, backup.ErrStranger, fs.ErrPermission,
		syscall.EROFS,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// reparse reads command line, environment and configuration file again.
type reparse func() (*commandLine, error)

// newParser returns the parser that fills cli.
func newParser(cli *commandLine, to streams, more ...kong.Option) *kong.Kong {
	parser, err := kong.New(cli, append([]kong.Option{
		kong.Name("packhorse"),
		kong.Description("A git host: clone, fetch and push over HTTP, and an API to the same repositories."),
		kong.DefaultEnvars("PACKHORSE"),
		kong.Vars{"memory": defaultMemory().String(), "log_level": "info"},
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeSpan)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), kong.MapperFunc(decodeLevel)),
		kong.NamedMapper("path", kong.MapperFunc(decodePath)),
		kong.Writers(to.out, to.errOut),
	}, more...)...)
	if err != nil {
		panic(err) // commandLine itself is malformed
	}
	hideForeign(parser.Model.Node)
	return parser
}

// commandOf returns the command that an error of parse is about.
func commandOf(err error, selected *kong.Context) string {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		selected = parse.Context
	}
	if selected != nil && selected.Selected() != nil {
		return selected.Model.Name + " " + selected.Selected().Path()
	}
	return "packhorse"
}

// usageError says what is wrong with what the operator has given, and what was expected.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }
