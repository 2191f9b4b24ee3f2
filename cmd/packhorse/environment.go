package main

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// environmentPrefix begins the environment variables that give flags.
const environmentPrefix = "PACKHORSE_"

// warnOfEnvironment names the environment variables that begin like those of flags and give none.
// It is no error: what starts a server may set variables for other programs, too.
func warnOfEnvironment(model *kong.Node, to streams) {
	known := flagNames(model)
	names := slices.Sorted(maps.Keys(known))
	for _, setting := range os.Environ() {
		variable, _, _ := strings.Cut(setting, "=")
		word, ours := strings.CutPrefix(variable, environmentPrefix)
		flag := strings.ToLower(strings.ReplaceAll(word, "_", "-"))
		if !ours || known[flag] || flag == "config" || isForOthers(word) {
			continue
		}
		to.complain("warning: the environment variable %s gives no flag%s", variable,
			didYouMean(flag, names, func(name string) string {
				return environmentPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			}))
	}
}

// isForOthers reports whether a variable, less the prefix, is known to be for something else: those
// that Kubernetes sets for a service named packhorse, and those of commands and tests.
func isForOthers(word string) bool {
	for _, of := range []string{"SERVICE_HOST", "SERVICE_PORT", "PORT"} {
		if word == of || strings.HasPrefix(word, of+"_") {
			return true
		}
	}
	return slices.Contains([]string{"REPO", "PROTOCOL", "HOST"}, word) // of packhorse credential --command
}
