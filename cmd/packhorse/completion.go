package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script that completes the command line in a shell.
type completionCommand struct {
	Shell string `arg:"" help:"Shell: bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Run prints the script.
func (c completionCommand) Run(to streams) error {
	shapes := commandShapes()
	script := map[string]func([]*commandShape) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	return to.printf("%s", script(shapes))
}

// quoted is a word for a shell, in single quotes.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// valueFlags returns the flags that take a value, in all commands, as patterns of a case.
func valueFlags(shapes []*commandShape) string {
	var names []string
	for _, shape := range shapes {
		for _, flag := range shape.flags {
			if !flag.IsBool() {
				names = append(names, "--"+flag.Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "|")
}

// enumCases calls visit with each flag and each argument that takes a few values only: its command,
// its flag as it is typed, or "" for an argument, and the values.
func enumCases(shapes []*commandShape, visit func(path, flag string, values []string)) {
	for _, shape := range shapes {
		for _, flag := range shape.flags {
			if values := enumOf(flag.Value); values != nil {
				visit(shape.path, "--"+flag.Name, values)
			}
		}
		for _, arg := range shape.args {
			if values := enumOf(arg); values != nil {
				visit(shape.path, "", values)
			}
		}
	}
}

// commandCases are the cases that follow the words of a command line to its command.
func commandCases(shapes []*commandShape, assign string) string {
	var text strings.Builder
	for _, shape := range shapes {
		for _, child := range shape.children {
			fmt.Fprintf(&text, "        %s) "+assign+" ;;\n", quoted(shape.path+"/"+child.name()), quoted(child.path))
		}
	}
	return text.String()
}

// bashScript completes in bash.
func bashScript(shapes []*commandShape) string {
	var text strings.Builder
	text.WriteString(`# Completion of packhorse in bash. Load it with: source <(packhorse completion bash)
_packhorse() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= flags= index
    # A "=" is a word of its own.
    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        case ${COMP_WORDS[index]} in
        `)
	text.WriteString(valueFlags(shapes) + `)
            if [[ ${COMP_WORDS[index+1]} == = ]]; then ((index++)); fi
            ((index++))
            continue ;;
        esac
        case "$command/${COMP_WORDS[index]}" in
`)
	text.WriteString(commandCases(shapes, "command=%s"))
	text.WriteString("        esac\n    done\n    COMPREPLY=()\n    case \"$command/$prev\" in\n")
	enumCases(shapes, func(path, flag string, values []string) {
		if flag != "" {
			fmt.Fprintf(&text, "    %s) mapfile -t COMPREPLY < <(compgen -W %s -- \"$cur\"); return ;;\n",
				quoted(path+"/"+flag), quoted(strings.Join(values, " ")))
		}
	})
	// Without a reply bash completes the names of files.
	text.WriteString("    esac\n    case $prev in\n    " + valueFlags(shapes) + ") return ;;\n    esac\n    case $command in\n")
	for _, shape := range shapes {
		var words, flags []string
		for _, child := range shape.children {
			words = append(words, child.name())
		}
		for _, arg := range shape.args {
			words = append(words, enumOf(arg)...)
		}
		for _, flag := range shape.flags {
			flags = append(flags, "--"+flag.Name)
		}
		fmt.Fprintf(&text, "    %s) words=%s flags=%s ;;\n", quoted(shape.path), quoted(strings.Join(words, " ")),
			quoted(strings.Join(flags, " ")))
	}
	text.WriteString(`    esac
    if [[ $cur == -* ]]; then words=$flags; fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o bashdefault -o default -F _packhorse packhorse
`)
	return text.String()
}

// described are words with their help, for _describe of zsh.
func described(words [][2]string) string {
	all := make([]string, 0, len(words))
	for _, word := range words {
		all = append(all, quoted(strings.ReplaceAll(word[0], ":", `\:`)+":"+word[1]))
	}
	return strings.Join(all, " ")
}

// childWords are the commands below one, with their help.
func childWords(shape *commandShape) [][2]string {
	var words [][2]string
	for _, child := range shape.children {
		words = append(words, [2]string{child.name(), child.help})
	}
	return words
}

// zshScript completes in zsh.
func zshScript(shapes []*commandShape) string {
	var text strings.Builder
	text.WriteString(`#compdef packhorse
# Completion of packhorse in zsh. Put it as _packhorse into a folder of $fpath, or load it with:
# source <(packhorse completion zsh)
_packhorse() {
    local command='' prev=$words[CURRENT-1]
    local -a commands flags values
    integer index
    for ((index = 2; index < CURRENT; index++)); do
        case $words[index] in
        (` + valueFlags(shapes) + `)
            ((index++))
            continue ;;
        esac
        case "$command/$words[index]" in
`)
	text.WriteString(strings.ReplaceAll(commandCases(shapes, "command=%s"), "        '", "        ('"))
	text.WriteString("        esac\n    done\n    case \"$command/$prev\" in\n")
	enumCases(shapes, func(path, flag string, values []string) {
		if flag != "" {
			fmt.Fprintf(&text, "    (%s) values=(%s) ;;\n", quoted(path+"/"+flag), strings.Join(values, " "))
		}
	})
	text.WriteString("    esac\n    if (($#values)); then compadd -a values; return; fi\n    case $prev in\n    (" +
		valueFlags(shapes) + ") _files; return ;;\n    esac\n    case $command in\n")
	for _, shape := range shapes {
		words := childWords(shape)
		for _, arg := range shape.args {
			for _, value := range enumOf(arg) {
				words = append(words, [2]string{value, arg.Help})
			}
		}
		var flags [][2]string
		for _, flag := range shape.flags {
			flags = append(flags, [2]string{"--" + flag.Name, flag.Help})
		}
		fmt.Fprintf(&text, "    (%s)\n        commands=(%s)\n        flags=(%s) ;;\n",
			quoted(shape.path), described(words), described(flags))
	}
	text.WriteString(`    esac
    if [[ $PREFIX == -* ]]; then
        _describe flag flags
    elif (($#commands)); then
        _describe command commands
    else
        _files
    fi
}
if [[ $funcstack[1] == _packhorse ]]; then _packhorse "$@"; else compdef _packhorse packhorse; fi
`)
	return text.String()
}

// fishScript completes in fish.
func fishScript(shapes []*commandShape) string {
	var text strings.Builder
	text.WriteString(`# Completion of packhorse in fish. Load it with: packhorse completion fish | source
function __packhorse_command
    set -l command ''
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        if contains -- $word ` + strings.ReplaceAll(valueFlags(shapes), "|", " ") + `
            set skip 1
            continue
        end
        switch "$command/$word"
`)
	for _, shape := range shapes {
		for _, child := range shape.children {
			fmt.Fprintf(&text, "            case %s\n                set command %s\n",
				quoted(shape.path+"/"+child.name()), quoted(child.path))
		}
	}
	text.WriteString("        end\n    end\n    echo \"$command\"\nend\n")
	for _, shape := range shapes {
		when := fmt.Sprintf("complete -c packhorse -n 'test (__packhorse_command) = \"%s\"'", shape.path)
		for _, word := range childWords(shape) {
			fmt.Fprintf(&text, "%s -f -a %s -d %s\n", when, quoted(word[0]), quoted(word[1]))
		}
		for _, arg := range shape.args {
			if values := enumOf(arg); values != nil {
				fmt.Fprintf(&text, "%s -f -a %s -d %s\n", when, quoted(strings.Join(values, " ")), quoted(arg.Help))
			}
		}
		for _, flag := range shape.flags {
			fmt.Fprintf(&text, "%s -l %s -d %s%s\n", when, flag.Name, quoted(flag.Help), fishValue(flag))
		}
	}
	return text.String()
}

// fishValue tells fish what a flag takes.
func fishValue(flag *kong.Flag) string {
	switch values := enumOf(flag.Value); {
	case values != nil:
		return " -x -a " + quoted(strings.Join(values, " "))
	case flag.IsBool():
		return ""
	}
	return " -r"
}
