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
}

func newWorld(tb testing.TB, options odb.Options) *world {
	tb.Helper()
	return &world{World: odbtest.NewWorld(tb, options)}
}
