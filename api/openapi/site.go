package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// The paths of the files.
const (
	DocumentPath = "/openapi.json"
	PagePath     = "/docs"
	AgentsPath   = "/llms.txt"
)

// File is a file about the API, ready to be sent. It is not changed any more.
type File struct {
	Path        string
	ContentType string
	ETag        string // in quotes
	Policy      string // for Content-Security-Policy; "" for none
	Body        []byte
}

// filesMax bounds all files together, in bytes: they are kept for as long as the server runs.
const filesMax = 4 << 20

// Files returns the document, the page for people and the text for agents.
func Files(info Info, operations []Operation) ([]File, error) {
	d, err := describe(info, operations, Options{})
	if err != nil {
		return nil, err
	}
	document, err := d.encode()
	if err != nil {
		return nil, err
	}
	page, policy, err := pageOf(&info, operations, d)
	if err != nil {
		return nil, err
	}
	files := []File{
		{Path: DocumentPath, ContentType: jsonType, Body: document},
		{Path: PagePath, ContentType: "text/html; charset=utf-8", Policy: policy, Body: page},
		{Path: AgentsPath, ContentType: "text/plain; charset=utf-8", Body: []byte(agentsText(&info, operations))},
	}
	size := 0
	for i := range files {
		sum := sha256.Sum256(files[i].Body)
		files[i].ETag = `"` + hex.EncodeToString(sum[:16]) + `"`
		size += len(files[i].Body)
	}
	if size > filesMax {
		return nil, fmt.Errorf("openapi: the files have %d bytes, more than %d", size, filesMax)
	}
	return files, nil
}

// Headers are the headers of the file beside its content type and length, name by name.
func (f *File) Headers() map[string]string {
	headers := map[string]string{
		"ETag": f.ETag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	}
	if f.Policy != "" {
		headers["Content-Security-Policy"] = f.Policy
	}
	return headers
}
