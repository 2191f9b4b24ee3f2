package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// configFile resolves flags from the file that --config names. Keys are the names of flags, of any
// subcommand, so that several commands can share a file; a key that is no flag is an error.
type configFile struct {
	loaded bool
	values map[string][]string
}

// Resolve returns the file's value of a flag that neither the command line nor the environment
// gives.
func (c *configFile) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return nil, nil
		}
	}
	values, ok := c.values[flag.Name]
	switch {
	case !ok:
		return nil, nil
	case flag.IsSlice():
		return kong.JoinEscaped(values, flag.Tag.Sep), nil
	case len(values) != 1:
		return nil, fmt.Errorf("configuration file: %s takes one value", flag.Name)
	default:
		return values[0], nil
	}
}

// Validate finds keys that are no flags.
func (c *configFile) Validate(app *kong.Application) error {
	known := flagNames(app.Node)
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		if !known[key] {
			return fmt.Errorf("configuration file: no flag is named %q", key)
		}
	}
	return nil
}

func (c *configFile) load(ctx *kong.Context) error {
	if c.loaded {
		return nil
	}
	c.loaded = true
	var path string
	for _, flag := range ctx.Model.Flags {
		if flag.Name == "config" {
			path, _ = ctx.FlagValue(flag).(string)
		}
	}
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	c.values, err = parseConfig(data)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// parseConfig returns the keys of a YAML mapping, each with its value or its list of values.
func parseConfig(data []byte) (map[string][]string, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return nil, err
	}
	values := make(map[string][]string, len(nodes))
	for key, node := range nodes {
		switch node.Kind {
		case yaml.ScalarNode:
			values[key] = []string{node.Value}
		case yaml.SequenceNode:
			var list []string
			if err := node.Decode(&list); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			values[key] = list
		default:
			return nil, fmt.Errorf("%s: neither a value nor a list", key)
		}
	}
	return values, nil
}

// flagNames returns the names of every flag below node.
func flagNames(node *kong.Node) map[string]bool {
	names := map[string]bool{}
	for _, flag := range node.Flags {
		names[flag.Name] = flag.Name != "help" && flag.Name != "config"
	}
	for _, child := range node.Children {
		maps.Copy(names, flagNames(child))
	}
	return names
}
