package main

import (
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// limitsGroup is the group of the flags that are limits of a server.
const limitsGroup = "Limits"

// commandShape is a command as completions and manual pages describe it.
type commandShape struct {
	path     string // "backup take"; "" for packhorse itself
	help     string
	flags    []*kong.Flag // of the command and of those above it, or of the command that it is short for
	args     []*kong.Positional
	children []*commandShape
}

// commandShapes returns every command that is not hidden: packhorse itself first, and each before
// those below it. Defaults are those of a machine that sets no limits.
func commandShapes() []*commandShape {
	var cli commandLine
	parser := newParser(
		&cli, streams{out: io.Discard, errOut: io.Discard}, kong.Vars{"memory": memoryDefault.String()},
	)
	var all []*commandShape
	var add func(node *kong.Node, path string) *commandShape
	add = func(node *kong.Node, path string) *commandShape {
		shape := &commandShape{
			path: path, help: node.Help, flags: slices.Concat(node.AllFlags(true)...), args: node.Positional,
		}
		slices.SortStableFunc(shape.flags, func(a, b *kong.Flag) int { return strings.Compare(a.Name, b.Name) })
		all = append(all, shape)
		for _, child := range node.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				below := add(child, strings.TrimSpace(path+" "+child.Name))
				shape.children = append(shape.children, below)
				if child == node.DefaultCmd {
					shape.flags = below.flags
				}
			}
		}
		return shape
	}
	add(parser.Model.Node, "")
	return all
}

// hideForeign hides from the help of each command the flags that mean nothing to it.
func hideForeign(node *kong.Node) {
	for _, flag := range node.Flags {
		flag.Hidden = flag.Hidden || !isFor(flag, strings.Fields(node.Path()))
	}
	for _, child := range node.Children {
		hideForeign(child)
	}
}

// isFor reports whether a flag means something to a command. The commands are those of the tag
// "for", serve standing for all that serve or check how a server would; flags without one, and
// limits, which have none each, are for all and for serve.
func isFor(flag *kong.Flag, command []string) bool {
	names := flag.Tag.Get("for")
	if flag.Group != nil && flag.Group.Key == limitsGroup {
		names = "serve"
	}
	if names == "" || len(command) == 0 {
		return true
	}
	name := command[0]
	if name == "dev" || name == "config" {
		name = "serve"
	}
	return slices.Contains(strings.Split(names, ","), name)
}

// name is the last word of the path.
func (c *commandShape) name() string { return c.path[strings.LastIndexByte(c.path, ' ')+1:] }

// enumOf returns the values that a flag or an argument takes, nil if there are others.
func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	values := strings.Split(v.Enum, ",")
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return values
}
