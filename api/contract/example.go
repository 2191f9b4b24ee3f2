package contract

import _ "embed"

// clientExample is a program that uses a published client library.
//
//go:embed example.mjs
var clientExample string

// ClientExample returns the program of the page that uses a published client library, for Node.
func ClientExample() string { return clientExample }
