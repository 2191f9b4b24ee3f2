package mcp

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"packhorse/api/exchange"
)

// readFilesMax bounds the files of one read_files.
const readFilesMax = 100

// listFiles lists a page of files: without a limit the API would list all of them.
func listFiles(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	query := given.query(t.fields)
	if !query.Has("limit") {
		query.Set("limit", "1000")
	}
	return d.callJSON(x, t, Call{Method: t.method, Path: t.path, Query: query, AnswerMax: answerMax})
}

// part is a part of a file that was read.
type part struct {
	body []byte
	next int64 // where the rest begins
	size int64 // of the file
}

// read reads up to sizeMax bytes of a file. The answer is the refusal of the API, if it refuses.
func (d *Door) read(x exchange.Exchange, t *tool, call Call, offset int64, sizeMax int) (*part, *Answer, error) {
	call.Method, call.Path, call.AnswerMax = t.method, t.path, sizeMax
	if offset > 0 { // a range of an empty file would be refused
		call.Header = map[string]string{"Range": fmt.Sprintf("bytes=%d-", offset)}
	}
	answer, err := d.caller.Call(x, call)
	if err != nil {
		return nil, nil, err
	}
	if answer.Status >= http.StatusBadRequest {
		return nil, answer, nil
	}
	p := &part{body: answer.Body, size: answer.Size}
	if answer.Status == http.StatusPartialContent {
		_, total, _ := strings.Cut(answer.Header.Get("Content-Range"), "/")
		if p.size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return nil, nil, fmt.Errorf("content-range of a file: %w", err)
		}
	}
	if answer.Truncated {
		if body := whole(p.body, true); len(body) > 0 && isText(body) {
			p.body = body
		}
	}
	p.next = offset + int64(len(p.body))
	return p, nil, nil
}

// rest says where a file goes on.
func (p *part) rest(path string, offset int64) content {
	return textContent("This is the part of %q from byte %d up to byte %d of %d. To go on, call read_file with offset %d.",
		path, offset, p.next, p.size, p.next)
}

func readFile(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	offset, _ := given.count("offset")
	length, limited := given.count("length")
	switch {
	case offset < 0:
		return nil, wrongArgument("argument %q: expected a number from 0 on", "offset")
	case limited && length < 1:
		return nil, wrongArgument("argument %q: expected a number from 1 on", "length")
	case !limited || length > answerMax:
		length = answerMax
	}
	p, refused, err := d.read(x, t, Call{Query: given.query(t.fields)}, offset, int(length))
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return refusal(refused), nil
	}
	path := given.text("path")
	r := &toolResult{}
	if isText(p.body) {
		r.Content = append(r.Content, textContent("%s", p.body))
	} else {
		r.Content = append(r.Content, content{Type: "resource", Resource: newResource(path, given.text("ref"), p.body)})
	}
	if p.next < p.size {
		r.Content = append(r.Content, p.rest(path, offset))
	}
	return r, nil
}

func readFiles(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	paths := given.texts("paths")
	if len(paths) == 0 || len(paths) > readFilesMax {
		return nil, wrongArgument("argument %q: expected 1 to %d paths, got %d", "paths", readFilesMax, len(paths))
	}
	r := &toolResult{IsError: true} // until one of them was read
	left := answerMax
	for i, path := range paths {
		if left == 0 {
			r.Content = append(r.Content, textContent("%d files were not read, from %q on: the answer is full. Call again for them.",
				len(paths)-i, path))
			break
		}
		query := given.query(t.fields)
		query.Set("path", path)
		p, refused, err := d.read(x, t, Call{Query: query}, 0, left)
		switch {
		case err != nil:
			return nil, err
		case refused != nil:
			body := strings.TrimSpace(string(refused.Body))
			r.Content = append(r.Content, textContent("%s: %s", path, refusalText(refused, body)))
			continue
		}
		left -= len(p.body)
		r.IsError = false
		r.Content = append(r.Content, content{Type: "resource", Resource: newResource(path, given.text("ref"), p.body)})
		if p.next < p.size {
			left = 0
			r.Content = append(r.Content, p.rest(path, 0))
		}
	}
	return r, nil
}
