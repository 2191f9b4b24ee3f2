package oracle

import (
	"os"
	"strconv"
	"testing"
)

// Real returns the bare repository in the folder PACKHORSE_REAL_REPO. A test is skipped when none
// is named.
func Real(tb testing.TB) *Repository {
	tb.Helper()
	dir := os.Getenv("PACKHORSE_REAL_REPO")
	if dir == "" {
		tb.Skip("PACKHORSE_REAL_REPO is not set")
	}
	return Open(tb, dir)
}

// RealCount returns how much of a real repository is looked at: PACKHORSE_REAL_COUNT, or count when
// it is not set.
func RealCount(tb testing.TB, count int) int {
	tb.Helper()
	return number(tb, "PACKHORSE_REAL_COUNT", count)
}

// CaseCount returns how many generated cases are tried: PACKHORSE_CASE_COUNT, or else count, or few
// when tests are to be short.
func CaseCount(tb testing.TB, count, few int) int {
	tb.Helper()
	if testing.Short() {
		count = few
	}
	return number(tb, "PACKHORSE_CASE_COUNT", count)
}

// ModelCount returns how many steps are made beside a model: PACKHORSE_MODEL_COUNT, or else count,
// or few when tests are to be short.
func ModelCount(tb testing.TB, count, few int) int {
	tb.Helper()
	if testing.Short() {
		count = few
	}
	return number(tb, "PACKHORSE_MODEL_COUNT", count)
}

// ForkCount returns how many forks of one repository are made: PACKHORSE_FORKS, or else count, or
// few when tests are to be short.
func ForkCount(tb testing.TB, count, few int) int {
	tb.Helper()
	if testing.Short() {
		count = few
	}
	return number(tb, "PACKHORSE_FORKS", count)
}

func number(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		tb.Fatalf("%s: expected a number, got %q", name, text)
	}
	return n
}
