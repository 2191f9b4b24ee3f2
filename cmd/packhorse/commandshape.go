package main

import (
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

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
