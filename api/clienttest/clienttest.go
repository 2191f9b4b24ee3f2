// Package clienttest holds the acceptance tests with real clients: git, curl, Node's fetch, the npm
// package @pierre/storage, isomorphic-git, go-git and dulwich, against a packhorse process, alone
// and behind nginx; and of the console in Chromium.
//
// `make test-clients` runs them; they carry the build tag "clients", as they need a network for npm
// and Go modules once. A client that cannot be had is skipped with the word "skipped". Clients in
// other languages than Go are scripts beside the tests; go-git is a module of its own in gogit, so
// that its dependencies stay out of the server's go.mod.
package clienttest
