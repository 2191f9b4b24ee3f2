// Package fuzz has the fuzz targets that belong to no single package. The others lie beside the
// parser that they test.
//
// Each target states a law in its comment; what once broke one stays as a seed. Run one with go
// test ./pack -fuzz FuzzPackReader, all for some seconds each with make fuzz. The room oracle asks
// the installed git.
package fuzz
