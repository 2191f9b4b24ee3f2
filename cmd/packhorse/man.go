package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// manCommand writes the manual: a page for each command, made of what --help says.
type manCommand struct {
	Dir string `arg:"" help:"Folder for the pages; created if missing." type:"path" is:"new folder"`
}

// Run writes the pages.
func (c manCommand) Run(to streams) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	shapes := commandShapes()
	for _, shape := range shapes {
		path := filepath.Join(c.Dir, pageName(shape.path)+".1")
		if err := os.WriteFile(path, []byte(manPage(shape)), 0o644); err != nil {
			return err
		}
	}
	return to.printf("wrote %s to %s\n", quantity(len(shapes), "page"), c.Dir)
}

// pageName is the name of a command's page: "packhorse-backup-take".
func pageName(path string) string {
	return strings.ReplaceAll(strings.TrimSpace("packhorse "+path), " ", "-")
}

// roff escapes a text. A dot or a quote at its beginning would be a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// manPage is a page in the language of man(7).
func manPage(shape *commandShape) string {
	var text strings.Builder
	printf := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	full := strings.TrimSpace("packhorse " + shape.path)
	printf(`.TH %s 1 "" "packhorse %s" "Packhorse manual"`+"\n.nh\n.ad l", roff(strings.ToUpper(pageName(shape.path))), roff(version))
	printf(".SH NAME\n%s \\- %s", roff(pageName(shape.path)), roff(strings.TrimSuffix(shape.help, ".")))
	printf(".SH SYNOPSIS\n.B %s", roff(full))
	if len(shape.children) > 0 {
		printf(`\fICOMMAND\fR`)
	}
	for _, arg := range shape.args {
		printf("%s", roff(arg.Summary()))
	}
	printf(`[\fIFLAGS\fR]`)
	printf(".SH DESCRIPTION\n%s", roff(shape.help))
	if len(shape.children) > 0 {
		printf(".SH COMMANDS")
		for _, child := range shape.children {
			printf(".TP\n.BR %s (1)\n%s", roff(pageName(child.path)), roff(child.help))
		}
	}
	if len(shape.args) > 0 {
		printf(".SH ARGUMENTS")
		for _, arg := range shape.args {
			printf(".TP\n.I %s\n%s", roff(arg.Name), roff(arg.Help))
		}
	}
	printf(".SH FLAGS")
	for _, flag := range shape.flags {
		printf(".TP\n\\fB%s\\fR%s\n%s", roff("--"+flag.Name), manValue(flag), roff(manHelp(flag)))
	}
	printf(".SH EXIT STATUS")
	printf("0: it succeeded. 1: it ran and failed.")
	printf("2: the command line, the environment or the configuration file is wrong.")
	if shape.path != "" {
		printf(".SH SEE ALSO\n.BR packhorse (1)")
	}
	return text.String()
}

// manValue is what follows the name of a flag.
func manValue(flag *kong.Flag) string {
	if flag.IsBool() {
		return ""
	}
	name := flag.PlaceHolder
	if name == "" {
		name = strings.ToUpper(flag.Name)
	}
	return `=\fI` + roff(name) + `\fR`
}

// manHelp is the help of a flag with its default and its variables.
func manHelp(flag *kong.Flag) string {
	text := flag.Help
	if flag.HasDefault && flag.Default != "" && !flag.IsBool() {
		text += " Default: " + flag.Default + "."
	}
	if flag.Required {
		text += " Required."
	}
	if len(flag.Envs) > 0 {
		text += " Variable: " + strings.Join(flag.Envs, ", ") + "."
	}
	return text
}
