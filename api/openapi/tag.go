package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A field is described by two tags. jsonschema holds its description; schema holds words, separated
// by commas:
//
//	required         the field must be in a request; in an answer it must be without omitempty
//	optional         it may be missing in an answer, too
//	older=NAME       another name of field NAME, which clients of today use; either is understood
//	enum=A|B         the values
//	min=N, max=N     bounds of a number, of the bytes of a text, or of the items of a list
//	default=VALUE    what a missing field means
//	NAME             a schema of Info.Shapes
//
// Words about values are about the items of a list, min and max excepted.

// apply adds the words of a tag to the schema of a field, and of the struct around it, if any.
func (s *schemas) apply(tag string, field, object *jsonschema.Schema, name string) error {
	if tag == "" {
		return nil
	}
	value := field
	if field.Items != nil {
		value = field.Items
	}
	for word := range strings.SplitSeq(tag, ",") {
		key, text, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "required":
			if object != nil && !slices.Contains(object.Required, name) {
				object.Required = append(object.Required, name)
			}
		case "optional":
			object.Required = slices.DeleteFunc(object.Required, func(other string) bool { return other == name })
		case "older":
			err = older(field, object, name, text)
		case "enum":
			for item := range strings.SplitSeq(text, "|") {
				value.Enum = append(value.Enum, item)
			}
		case "min", "max":
			err = bound(field, key, text)
		case "default":
			if value.Default, err = literal(value, text); object != nil {
				// Generators take a field with a default for one that is always there.
				value.Default = nil
				field.Description = strings.TrimPrefix(field.Description+"; default `"+text+"`", "; ")
			}
		default:
			if s.named[key] == nil || text != "" {
				return fmt.Errorf("%q is neither a word of a tag nor a shape", word)
			}
			value.Type, value.Types, value.Ref = "", nil, componentsRef+key
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

// older makes a field an older name of another one.
func older(field, object *jsonschema.Schema, name, newer string) error {
	if object.Properties[newer] == nil {
		return fmt.Errorf("there is no field %s", newer)
	}
	field.Deprecated = true
	field.Description = cmp.Or(field.Description, "Older name of `"+newer+"`.")
	if i := slices.Index(object.Required, newer); i >= 0 && !slices.Contains(object.Required, name) {
		object.Required = slices.Delete(object.Required, i, i+1)
		either := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Required: []string{newer}}, {Required: []string{name}}}}
		object.AllOf = append(object.AllOf, either)
	}
	return nil
}

func bound(field *jsonschema.Schema, key, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	number := float64(n)
	switch {
	case field.Type == "string" && key == "min":
		field.MinLength = &n
	case field.Type == "string":
		field.MaxLength = &n
	case field.Type == "array" && key == "min":
		field.MinItems = &n
	case field.Type == "array":
		field.MaxItems = &n
	case key == "min":
		field.Minimum = &number
	default:
		field.Maximum = &number
	}
	return nil
}

// literal is a value of a schema's type as JSON.
func literal(schema *jsonschema.Schema, text string) (json.RawMessage, error) {
	if schema.Type == "string" || schema.Ref != "" {
		return json.Marshal(text)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("expected a %s", schema.Type)
	}
	return json.RawMessage(text), nil
}

// jsonName is the name that JSON has for a field, and false for a field that JSON does not have.
func jsonName(field reflect.StructField) (string, bool) {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return cmp.Or(name, field.Name), field.IsExported() && name != "-" && (!field.Anonymous || name != "")
}
