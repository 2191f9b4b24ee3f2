// Package bench measures Packhorse from the outside of its floors: a file answers one question.
//
// Start at README.md, which says how to read the numbers. The benchmarks run with go test -bench;
// peers runs the same jobs beside other servers. A benchmark of one function lives beside that
// function instead.
package bench
