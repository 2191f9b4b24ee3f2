package odb_test

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// world is an [odbtest.World] with more methods.
type world struct {
	*odbtest.World
	planned int // how many objects the commits of damagedWorld reach
	// Of damagedWorld: paths, and what path histories say of them.
	paths   []string
	changes map[string]string
}

func newWorld(tb testing.TB, options odb.Options) *world {
	tb.Helper()
	return &world{World: odbtest.NewWorld(tb, options)}
}
