package rest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// jsonBodyMax bounds a JSON body in bytes.
const jsonBodyMax = 1 << 20

// Page sizes: docs/api.md, "Conventions".
const (
	limitDefault = 20
	limitMax     = 100
)

// readJSON reads a JSON object into out and returns its bytes. If optional allows it, an empty body
// leaves out unchanged.
func readJSON(x exchange.Exchange, out any, optional bool) ([]byte, error) {
	body, err := exchange.ReadBody(x, jsonBodyMax)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		if optional {
			return body, nil
		}
		return nil, malformed(code.MalformedJSON, "the body must be a JSON object")
	}
	return body, decodeJSON(body, out)
}

// decodeJSON is strict about mistakes that could stay hidden, duplicate names and wrong types, and
// ignores unknown names except guards. The message of its error names the field.
func decodeJSON(data []byte, out any, options ...json.Options) error {
	if err := exchange.CheckShape(data); err != nil {
		return err
	}
	err := json.Unmarshal(data, out, options...)
	if err == nil {
		return checkGuards(data, out)
	}
	if limit, ok := errors.AsType[*engine.LimitError](err); ok {
		return limit
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if expected := numberFault(semantic); expected != "" {
			return badRequest("field %s: expected %s, got %.40s", fieldName(semantic.JSONPointer), expected, semantic.JSONValue)
		}
		return badRequest("field %s: expected %s, got a JSON %s", fieldName(semantic.JSONPointer), typeName(semantic),
			kindName(semantic.JSONKind))
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return badRequest("field %s is given twice", fieldName(syntactic.JSONPointer))
		}
		return malformed(code.MalformedJSON, "malformed JSON at byte %d: %v", syntactic.ByteOffset, syntactic.Err)
	}
	return malformed(code.MalformedJSON, "malformed JSON: %v", err)
}

// fieldName turns a JSON pointer into the dotted name that people use.
func fieldName(pointer jsontext.Pointer) string {
	if pointer == "" {
		return "(the whole body)"
	}
	return strconv.Quote(strings.ReplaceAll(strings.TrimPrefix(string(pointer), "/"), "/", "."))
}

func typeName(e *json.SemanticError) string {
	if e.GoType == nil {
		return "another type"
	}
	switch kind := e.GoType.Kind().String(); {
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "slice":
		return "an array"
	case kind == "struct", kind == "map", kind == "ptr":
		return "an object"
	default:
		return "a string"
	}
}

// numberFault says which numbers are expected where another one is given; "" where none is given,
// or none is expected.
func numberFault(e *json.SemanticError) string {
	if e.JSONKind != '0' || len(e.JSONValue) == 0 || typeName(e) != "a number" {
		return ""
	}
	kind := e.GoType.Kind().String()
	switch {
	case strings.HasPrefix(kind, "float"):
		return "a smaller number"
	case bytes.ContainsAny(e.JSONValue, ".eE"):
		return "a whole number"
	case strings.HasPrefix(kind, "uint") && e.JSONValue[0] == '-':
		return "a number that is not negative"
	default:
		return fmt.Sprintf("a number of %d bits", e.GoType.Bits())
	}
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	case '[':
		return "array"
	default:
		return "value"
	}
}

// pageOf reads the page size of a listing that is paged where it is asked for by limit or cursor,
// and 0 where it is not.
func pageOf(x exchange.Exchange, byDefault, most int) (int, error) {
	if query := x.Query(); query.Get("limit") == "" && query.Get("cursor") == "" {
		return 0, nil
	}
	return limitOf(x, byDefault, most)
}

// limitOf reads the page size.
func limitOf(x exchange.Exchange, byDefault, most int) (int, error) {
	text := x.Query().Get("limit")
	if text == "" {
		return byDefault, nil
	}
	limit, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") {
		return most, nil
	}
	if err != nil || limit < 1 {
		return 0, badRequest("limit: expected a number from 1 on, got %.40q", text)
	}
	return min(limit, most), nil
}

// flagOf reads a query parameter that is "true" or "false".
func flagOf(x exchange.Exchange, name string, byDefault bool) (bool, error) {
	switch value := x.Query().Get(name); value {
	case "":
		return byDefault, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, badRequest("%s: expected true or false, got %.40q", name, value)
	}
}

// spaceOf reads the namespace of a query.
func spaceOf(x exchange.Exchange) (refs.Namespace, error) { return spaceBy(x, "ephemeral") }

// spaceBy reads the namespace that a flag of a query selects.
func spaceBy(x exchange.Exchange, flag string) (refs.Namespace, error) {
	ephemeral, err := flagOf(x, flag, false)
	return namespace(ephemeral), err
}

func namespace(ephemeral bool) refs.Namespace {
	if ephemeral {
		return refs.Ephemeral
	}
	return refs.Main
}
