//go:build !unix

package api

func descriptorsMax() uint64 { return descriptorsDefault }
