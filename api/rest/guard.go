package rest

import (
	"bytes"
	"cmp"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/code"
)

// A guard is a field or a parameter that keeps a write from happening: an expectation, or a dry
// run. An unknown guard is refused, whereas other unknown fields are ignored: a caller who sends a
// guard relies on it.

// isGuard reports whether a name, however it is spelt, is that of a guard.
func isGuard(name string) bool {
	plain := strings.ToLower(separators.Replace(name))
	return strings.HasPrefix(plain, "expected") || plain == "dryrun"
}

var separators = strings.NewReplacer("_", "", "-", "")

// mayGuard reports quickly whether JSON may contain the name of a guard, in a likely spelling, or
// escaped.
func mayGuard(text []byte) bool {
	for _, part := range guardParts {
		if bytes.Contains(text, part) {
			return true
		}
	}
	return false
}

var guardParts = [][]byte{
	[]byte(`\`), []byte("xpected"), []byte("XPECTED"),
	[]byte("ry_R"), []byte("ry-R"), []byte("ry_run"), []byte("ry-run"), []byte("ryRun"), []byte("ryrun"), []byte("RY_RUN"), []byte("RY-RUN"),
	[]byte("RYRUN"),
}

// CheckQuery refuses guards in a query, except a dry run where deletes says that the call takes one
// there.
func CheckQuery(query url.Values, deletes bool) error {
	for name := range query {
		if isGuard(name) && (!deletes || name != dryRunName) {
			return malformed(code.UnknownGuard, "parameter %.100q is not known here, and a guard is not ignored", name)
		}
	}
	return nil
}

// checkGuards refuses guards in a JSON value that the type of out, into which it is decoded, does
// not know at that place. data is valid JSON that [exchange.CheckShape] has passed.
func checkGuards(data []byte, out any) error {
	if !mayGuard(data) {
		return nil
	}
	t := reflect.TypeOf(out)
	unknown := unknownGuard(jsontext.NewDecoder(bytes.NewReader(data)), t)
	if unknown == "" {
		return nil
	}
	understood := guardsOf(t)
	slices.Sort(understood)
	understood = slices.Compact(understood) // operations of a transaction share them
	if len(understood) == 0 {
		return malformed(code.UnknownGuard,
			"field %s is not known here, and a guard is not ignored; this call understands none", fieldName(unknown))
	}
	return malformed(code.UnknownGuard,
		"field %s is not known here, and a guard is not ignored; this call understands %q",
		fieldName(unknown), strings.Join(understood, ", "))
}

// unknownGuard reads a value that is decoded into t, nil if it is ignored, and returns the place of
// the first guard that t does not have.
func unknownGuard(d *jsontext.Decoder, t reflect.Type) jsontext.Pointer {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		_ = d.SkipValue() // the value has been decoded before
		return ""
	}
	_, _ = d.ReadToken()
	var element reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		element = t.Elem()
	}
	for k := d.PeekKind(); k != '}' && k != ']' && k != 0; k = d.PeekKind() {
		if kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return ""
			}
			field, known := fieldOf(t, name.String())
			if !known && isGuard(name.String()) {
				return d.StackPointer()
			}
			element = field
		}
		if found := unknownGuard(d, element); found != "" {
			return found
		}
	}
	_, _ = d.ReadToken()
	return ""
}

// fieldOf returns the type of a struct's field of a JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for field, tag := range jsonFields(t) {
		if tag == name {
			return field, true
		}
	}
	return nil, false
}

// guardsOf returns the names of the guards that a type knows anywhere.
func guardsOf(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for field, name := range jsonFields(t) {
		if isGuard(name) {
			names = append(names, name)
		}
		names = append(names, guardsOf(field)...)
	}
	return names
}

// jsonFields walks the fields of a struct with the names that JSON has for them.
func jsonFields(t reflect.Type) func(yield func(reflect.Type, string) bool) {
	return func(yield func(reflect.Type, string) bool) {
		if t == nil || t.Kind() != reflect.Struct {
			return
		}
		for field := range t.Fields() {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous && tag == "" {
				for inner, name := range jsonFields(field.Type) {
					if !yield(inner, name) {
						return
					}
				}
				continue
			}
			if tag != "-" && field.IsExported() && !yield(field.Type, cmp.Or(tag, field.Name)) {
				return
			}
		}
	}
}
