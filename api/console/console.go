// Package console is the console: pages for people that read repositories through the public API.
//
// Start at [Files], which are all there is to serve: a page, its styles and its scripts, embedded
// and known by their paths. static/main.js is the map of the scripts. What the pages show they ask
// of the API, with a token that stays in the tab, so that no file here depends on who reads it.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Path is where the page is. The other files lie below it.
const Path = "/console"

// Policy is the Content-Security-Policy of every file: scripts and styles from the files alone,
// requests to the same server alone, and no frame around the page.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is a file of the console, ready to be sent. It is not changed any more.
type File struct {
	Path        string // of the URL
	ContentType string
	ETag        string // of the body, in quotes
	Body        []byte
}

//go:embed static
var static embed.FS

// page is the file at [Path] itself.
const page = "index.html"

// contentTypes are the kinds of files that there are, by extension.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Files returns all files in the order of their names. An error names a file of an unknown kind.
func Files() ([]File, error) {
	root, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	var files []File
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		kind, known := contentTypes[path.Ext(name)]
		if !known {
			return fmt.Errorf("console: %s is no page, style, script or drawing", name)
		}
		body, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		files = append(files, File{
			Path:        strings.TrimSuffix(Path+"/"+name, "/"+page),
			ContentType: kind,
			ETag:        `"` + hex.EncodeToString(sum[:16]) + `"`,
			Body:        body,
		})
		return nil
	})
	return files, err
}

// Headers are the headers of the file beside its content type and length, name by name.
func (f *File) Headers() map[string]string {
	return map[string]string{
		"ETag":                         f.ETag,
		"Cache-Control":                "no-cache",
		"Content-Security-Policy":      Policy,
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	}
}
