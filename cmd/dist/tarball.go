package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"path"
	"slices"
	"time"
)

// tarGzip returns a compressed tarball of files and of the folders above them, which belong to
// root.
func tarGzip(files []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(packed)
	known := make(map[string]bool)
	add := func(header tar.Header, data []byte) error {
		header.ModTime, header.Format, header.Size = at, tar.FormatUSTAR, int64(len(data))
		if err := w.WriteHeader(&header); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	for _, file := range files {
		var above []string
		for dir := path.Dir(file.name); dir != "." && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			above = append(above, dir)
		}
		for _, dir := range slices.Backward(above) {
			if err := add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
				return nil, err
			}
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode}, file.data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
