package object_test

import (
	"fmt"
	"testing"

	"packhorse/pack/object"
)

// benchTree returns a tree of 100 files and folders.
func benchTree() []byte {
	var data []byte
	for i := range 100 {
		mode := "100644"
		if i%5 == 0 {
			mode = "40000"
		}
		data = append(data, entry(mode, fmt.Sprintf("name-of-%03d.go", i), hexC)...)
	}
	return data
}

func BenchmarkTreeIter(b *testing.B) {
	data := benchTree()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	names := 0
	for b.Loop() {
		it := object.IterTree(data)
		for it.Next() {
			names += len(it.Name)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for kind, data := range map[object.Type][]byte{
		object.TypeTree:   benchTree(),
		object.TypeCommit: []byte(treeLine + parentLine + authorLine + commitLine + "\nsubject\n\nbody\n"),
		object.TypeTag:    []byte(oddTags["plain"]),
	} {
		b.Run(kind.String(), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := object.Check(kind, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	data := []byte(treeLine + parentLine + authorLine + commitLine + "\nsubject\n\nbody\n")
	b.Run("links", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, _, err := object.CommitLinks(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := object.ParseCommit(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
