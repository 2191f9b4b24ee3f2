// Package fuzz has one fuzz target for each parser of foreign bytes. Each states a law in its comment; what once broke one stays as a seed.
//
// Run one with go test ./fuzz -fuzz FuzzPackReader, all for some seconds each with make fuzz. The room oracle asks the installed git.
package fuzz
