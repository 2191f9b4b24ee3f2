package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemas are the named schemas of a document, made from types as they are asked for.
type schemas struct {
	guard  *regexp.Regexp // info.Guard; nil without one
	strict bool
	named  map[string]*jsonschema.Schema
	known  map[typed]string // the name of a type's schema
}

// typed is a type in one direction: what must be there, and what else may be, differs.
type typed struct {
	t    reflect.Type
	sent bool // by clients
}

func newSchemas(info *Info, strict bool) *schemas {
	s := &schemas{strict: strict, known: make(map[typed]string), named: make(map[string]*jsonschema.Schema)}
	maps.Copy(s.named, info.Shapes)
	if info.Guard != "" {
		s.guard = regexp.MustCompile(info.Guard)
		s.named[notAGuard] = &jsonschema.Schema{
			Description: "The name of a field that is no guard: unknown fields are ignored, unknown guards refused.",
			Not:         &jsonschema.Schema{Pattern: info.Guard},
		}
	}
	return s
}

// notAGuard is the name of the schema for names of unknown fields.
const notAGuard = "UnknownFieldName"

const componentsRef = "#/components/schemas/"

func reference(name string) *jsonschema.Schema { return &jsonschema.Schema{Ref: componentsRef + name} }

// of returns the schema of a value's type. A struct with a name gets a schema with this name, and a
// reference to it is returned.
func (s *schemas) of(value any, sent bool) (*jsonschema.Schema, error) {
	return s.ofType(reflect.TypeOf(value), sent)
}

func (s *schemas) ofType(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !isNamed(t) {
		return s.infer(t, sent)
	}
	if name, ok := s.known[typed{t, sent}]; ok {
		return reference(name), nil
	}
	schema, err := s.infer(t, sent)
	if err != nil {
		return nil, err
	}
	name := t.Name()
	if other, taken := s.named[name]; taken && !equal(other, schema) {
		if sent {
			name += "Sent" // the same type, which an answer has, too
		}
		if other, taken := s.named[name]; taken && !equal(other, schema) {
			return nil, fmt.Errorf("openapi: two schemas would be called %s: %v has another one", name, t)
		}
	}
	s.named[name], s.known[typed{t, sent}] = schema, name
	return reference(name), nil
}

func isNamed(t reflect.Type) bool { return t.Kind() == reflect.Struct && t.Name() != "" }

func equal(a, b *jsonschema.Schema) bool {
	one, err1 := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(one, other)
}

// infer makes the schema of a type; the structs that it names get schemas of their own.
func (s *schemas) infer(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	named := make(map[reflect.Type]*jsonschema.Schema)
	for part := range parts(t) {
		if named[part] == nil {
			ref, err := s.ofType(part, sent)
			if err != nil {
				return nil, err
			}
			named[part] = ref
		}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: named})
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return schema, s.complete(schema, t, sent)
}

// parts walks the structs with a name that fields of t have, but not the fields of those.
func parts(t reflect.Type) func(yield func(reflect.Type) bool) {
	return func(yield func(reflect.Type) bool) { walkParts(t, yield) }
}

func walkParts(t reflect.Type, yield func(reflect.Type) bool) bool {
	t = element(t)
	if t.Kind() != reflect.Struct {
		return true
	}
	for _, field := range reflect.VisibleFields(t) {
		inner := element(field.Type)
		switch {
		case field.Anonymous, !field.IsExported():
		case isNamed(inner):
			if !yield(inner) {
				return false
			}
		case !walkParts(inner, yield):
			return false
		}
	}
	return true
}

// element is the type inside of pointers, slices, arrays and maps.
func element(t reflect.Type) reflect.Type {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	return t
}

// complete applies the tags of t's fields to its schema, and the rules of the direction.
func (s *schemas) complete(schema *jsonschema.Schema, t reflect.Type, sent bool) error {
	withoutNull(schema)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return s.complete(schema.Items, t.Elem(), sent)
	case reflect.Map:
		return s.complete(schema.AdditionalProperties, t.Elem(), sent)
	case reflect.Struct:
		if schema.Ref != "" {
			return nil
		}
	default:
		return nil
	}
	if sent {
		schema.Required = nil
	}
	if sent || !s.strict {
		schema.AdditionalProperties = nil
	}
	var guards []any
	for _, field := range reflect.VisibleFields(t) {
		name, ok := jsonName(field)
		if !ok {
			continue
		}
		property := schema.Properties[name]
		if err := s.complete(property, field.Type, sent); err != nil {
			return err
		}
		if err := s.apply(field.Tag.Get("schema"), property, schema, name); err != nil {
			return fmt.Errorf("openapi: %v, field %s: %w", t, field.Name, err)
		}
		if s.guard != nil && s.guard.MatchString(name) {
			guards = append(guards, name)
		}
	}
	if sent && s.guard != nil {
		schema.PropertyNames = reference(notAGuard)
		if len(guards) > 0 {
			schema.PropertyNames = &jsonschema.Schema{
				AnyOf: []*jsonschema.Schema{reference(notAGuard), {Enum: guards}},
			}
		}
	}
	return nil
}

// withoutNull removes null from the types of a schema: no answer has it, and in a request it means
// what an absent field does.
func withoutNull(schema *jsonschema.Schema) {
	if schema.Types == nil {
		return
	}
	types := slices.DeleteFunc(slices.Clone(schema.Types), func(name string) bool { return name == "null" })
	schema.Types = nil
	switch len(types) {
	case 0:
	case 1:
		schema.Type = types[0]
	default:
		schema.Types = types
	}
}
