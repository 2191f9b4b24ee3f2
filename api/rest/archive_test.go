package rest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
)

func TestArchive(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	for body, want := range map[string]string{
		"":              "README.md=hello again, lib/, lib/a.go=package a",
		"{}":            "README.md=hello again, lib/, lib/a.go=package a",
		`{"ref":"dev"}`: "README.md=hello again, lib/, lib/a.go=package a, lib/b.go=package b",
		`{"ref":"` + done[0].Commit.SHA + `","archive":{"prefix":"r/"}}`:    "r/, r/README.md=hello",
		`{"ref":"dev","include_globs":["*.go"],"exclude_globs":["lib/b*"]}`: "lib/, lib/a.go=package a",
		`{"max_blob_size":10,"unknown":1}`:                                  "lib/, lib/a.go=package a",
	} {
		got := c.call(c.door.Archive, http.MethodPost, "/", strings.NewReader(body)).want(http.StatusOK)
		if kind := got.Header.Get("Content-Type"); kind != "application/gzip" {
			t.Errorf("%s: the type is %s", body, kind)
		}
		if name := got.Header.Get("Content-Disposition"); !strings.HasPrefix(name, `attachment; filename="r-`) ||
			!strings.HasSuffix(name, `.tar.gz"`) {
			t.Errorf("%s: the disposition is %s", body, name)
		}
		if told := untar(t, got.Body); told != want {
			t.Errorf("%s: got %s, want %s", body, told, want)
		}
	}
	for body, says := range map[string]string{
		`{"ref":1}`:                    `"ref"`,
		`{"max_blob_size":0}`:          "max_blob_size",
		`{"max_blob_size":"1"}`:        `"max_blob_size"`,
		`{"include_globs":["["]}`:      "glob",
		`{"include_globs":"a"}`:        `"include_globs"`,
		`{"archive":{"prefix":"../"}}`: "prefix",
		`{"archive":{"prefix":"/a"}}`:  "prefix",
		`{"ref":"main","ref":"dev"}`:   `"ref"`,
		`[]`:                           "whole body",
	} {
		c.call(c.door.Archive, http.MethodPost, "/", strings.NewReader(body)).refused(http.StatusBadRequest, says)
	}
	c.call(c.door.Archive, http.MethodPost, "/", strings.NewReader(`{"ref":"nope"}`)).refused(http.StatusNotFound, "nope")
	c.as("nope").call(c.door.Archive, http.MethodPost, "/", nil).refused(http.StatusNotFound, "nope")
}

// untar lists the content of an archive.
func untar(t *testing.T, packed []byte) string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, ", ")
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		switch header.Typeflag {
		case tar.TypeReg:
			all = append(all, header.Name+"="+strings.TrimSpace(string(content)))
		case tar.TypeDir:
			all = append(all, header.Name)
		}
	}
}

// A server without a free slot says so instead of beginning an archive.
func TestArchiveOfABusyServer(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	x := exchangetest.New(http.MethodPost, "/", nil)
	x.SlotErr = exchange.ErrBusy
	if err := c.door.Archive(x, c.grant); !errors.Is(err, exchange.ErrBusy) {
		t.Errorf("%v", err)
	}
}
