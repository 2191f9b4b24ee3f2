package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"packhorse/api/exchange"
)

// line is a line of a stream: docs/api.md, "Writing commits".
type line map[string]any

// stream calls an endpoint that takes lines: the metadata of a commit, then chunks.
func (d *Door) stream(x exchange.Exchange, t *tool, given arguments, metadata map[string]any, chunks []line,
) (*toolResult, error) {
	var body []byte
	for _, l := range append([]line{{"metadata": metadata}}, chunks...) {
		encoded, err := encode(l)
		if err != nil {
			return nil, err
		}
		body = append(append(body, encoded...), '\n')
	}
	header := given.headers(t.fields)
	header["Content-Type"] = "application/x-ndjson"
	return d.callJSON(x, t, Call{Method: t.method, Path: t.path, Header: header, Body: body, AnswerMax: answerMax})
}

func commit(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	var changes []arguments
	if err := json.Unmarshal(given["files"], &changes); err != nil {
		return nil, err
	}
	listed := make([]line, len(changes))
	var chunks []line
	for i, change := range changes {
		change.dropNulls()
		chunk, err := change.file(&listed[i], strconv.Itoa(i))
		if err != nil {
			return nil, wrongArgument("argument %q: [%d]%v", "files", i, err)
		}
		if chunk != nil {
			chunks = append(chunks, chunk)
		}
	}
	metadata := given.body(t.fields)
	metadata["files"] = listed
	return d.stream(x, t, given, metadata, chunks)
}

// file says what to do with a file, and returns the chunk with its content, if it has one, under
// id.
func (a arguments) file(told *line, id string) (chunk line, err error) {
	*told = line{"path": a["path"]}
	if mode, ok := a["mode"]; ok {
		(*told)["mode"] = mode
	}
	data, written, err := content64(a, "text", "base64")
	if err != nil {
		return nil, fmt.Errorf(".%w", err)
	}
	var ways []string
	if written {
		(*told)["content_id"] = id
		chunk = line{"blob_chunk": line{"content_id": id, "data": data, "eof": true}}
		ways = append(ways, "upsert")
	}
	if string(a["delete"]) == "true" {
		ways = append(ways, "delete")
	}
	for name, way := range map[string]string{"move_from": "move", "copy_from": "copy"} {
		if from, ok := a[name]; ok {
			(*told)["from"] = from
			ways = append(ways, way)
		}
	}
	if edits, ok := a["edits"]; ok {
		(*told)["edits"] = edits
		if (*told)["from"] == nil {
			ways = append(ways, "edit")
		}
	}
	if len(ways) != 1 {
		return nil, errors.New(": expected one of text, base64, edits, move_from, copy_from and delete")
	}
	(*told)["operation"] = ways[0]
	return chunk, nil
}

func applyPatch(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	data, ok, err := content64(given, "patch", "patch_base64")
	if err != nil {
		return nil, wrongArgument("%v", err)
	}
	if !ok {
		return nil, wrongArgument("expected one of the arguments patch and patch_base64")
	}
	return d.stream(x, t, given, given.body(t.fields), []line{{"diff_chunk": line{"data": data, "eof": true}}})
}

// content64 returns the one of two arguments that is given, plain text or base64, in base64. It
// fails with both.
func content64(given arguments, plain, encoded string) (data string, ok bool, err error) {
	_, hasPlain := given[plain]
	_, hasEncoded := given[encoded]
	switch {
	case hasPlain && hasEncoded:
		return "", false, wrongArgument("%s and %s exclude each other", plain, encoded)
	case hasPlain:
		return base64.StdEncoding.EncodeToString([]byte(given.text(plain))), true, nil
	case hasEncoded:
		data = given.text(encoded)
		if _, err := base64.StdEncoding.DecodeString(data); err != nil {
			return "", false, wrongArgument("%s: expected padded base64", encoded)
		}
		return data, true, nil
	}
	return "", false, nil
}
