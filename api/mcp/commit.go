package mcp

import (
	"encoding/base64"
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
		remove := string(change["delete"]) == "true"
		told := line{"path": change["path"]}
		if mode, ok := change["mode"]; ok {
			told["mode"] = mode
		}
		data, given, err := content64(change, "text", "base64")
		if err != nil {
			return nil, wrongArgument("argument %q: [%d].%v", "files", i, err)
		}
		switch {
		case remove == given:
			return nil, wrongArgument("argument %q: [%d]: expected one of text, base64 and delete", "files", i)
		case remove:
			told["operation"] = "delete"
		default:
			id := strconv.Itoa(i)
			told["content_id"] = id
			chunks = append(chunks, line{"blob_chunk": line{"content_id": id, "data": data, "eof": true}})
		}
		listed[i] = told
	}
	metadata := given.body(t.fields)
	metadata["files"] = listed
	return d.stream(x, t, given, metadata, chunks)
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
