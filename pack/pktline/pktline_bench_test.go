package pktline_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"packhorse/pack/pktline"
)

func BenchmarkRead(b *testing.B) {
	var in []byte
	for range 5000 {
		in = pktline.AppendLine(in, []byte("0123456789abcdef0123456789abcdef01234567 refs/heads/branch\n"))
	}
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		r := pktline.NewReader(bytes.NewReader(in))
		for {
			if _, _, err := r.Read(); errors.Is(err, io.EOF) {
				break
			}
		}
	}
}

func BenchmarkSideband(b *testing.B) {
	s := pktline.NewSideband(pktline.NewWriter(io.Discard), pktline.BandData, 0)
	content := make([]byte, 256<<10)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if _, err := s.Write(content); err != nil {
			b.Fatal(err)
		}
	}
}
