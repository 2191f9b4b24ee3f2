package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// line is a field as the page shows it.
type line struct {
	Depth    int
	Name     string
	Type     string
	Required bool
	Older    bool // an older name
	Text     string
}

// outlineMax bounds the lines of one body.
const outlineMax = 200

// outline lists the fields of a schema, those of objects within behind them.
func outline(named map[string]*jsonschema.Schema, schema *jsonschema.Schema) []line {
	var lines []line
	var walk func(schema *jsonschema.Schema, depth int)
	walk = func(schema *jsonschema.Schema, depth int) {
		object := fields(named, schema)
		for _, name := range order(object) {
			if len(lines) == outlineMax {
				return
			}
			field := object.Properties[name]
			lines = append(lines, line{
				Depth: depth, Name: name, Type: typeText(named, field), Older: field.Deprecated,
				Required: slices.Contains(object.Required, name) || eitherRequired(object, name),
				Text:     fieldText(field),
			})
			walk(field, depth+1)
		}
	}
	walk(schema, 0)
	return lines
}

// fields returns the object that a schema describes itself, as its items, or as its members.
func fields(named map[string]*jsonschema.Schema, schema *jsonschema.Schema) *jsonschema.Schema {
	for {
		schema = follow(named, schema)
		switch {
		case schema.Items != nil:
			schema = schema.Items
		case schema.Properties == nil && schema.AdditionalProperties != nil && schema.AdditionalProperties.Not == nil:
			schema = schema.AdditionalProperties
		default:
			return schema
		}
	}
}

func follow(named map[string]*jsonschema.Schema, schema *jsonschema.Schema) *jsonschema.Schema {
	if name, ok := strings.CutPrefix(schema.Ref, componentsRef); ok && named[name] != nil {
		return named[name]
	}
	return schema
}

// order is the names of the fields as the Go type has them.
func order(object *jsonschema.Schema) []string {
	return slices.DeleteFunc(slices.Clone(object.PropertyOrder), func(name string) bool {
		return object.Properties[name] == nil
	})
}

// eitherRequired reports whether a field is required in one of its names, of which this is the
// newer one.
func eitherRequired(object *jsonschema.Schema, name string) bool {
	return slices.ContainsFunc(object.AllOf, func(all *jsonschema.Schema) bool {
		return len(all.AnyOf) > 0 && slices.Contains(all.AnyOf[0].Required, name)
	})
}

// typeText is the type of a value: the name of a shape, or the JSON type.
func typeText(named map[string]*jsonschema.Schema, schema *jsonschema.Schema) string {
	told := follow(named, schema)
	name, isNamed := strings.CutPrefix(schema.Ref, componentsRef)
	switch {
	case told.Items != nil:
		return "array of " + typeText(named, told.Items)
	case isNamed && told.Properties == nil && told.Type != "object":
		return name
	case told.Type == "":
		return "any"
	default:
		return told.Type
	}
}

// fieldText is the description of a field with its values, bounds and default. What a shape allows
// is said once, where the page lists shapes.
func fieldText(schema *jsonschema.Schema) string {
	var parts []string
	if schema.Description != "" {
		parts = append(parts, strings.TrimSuffix(schema.Description, "."))
	}
	values := schema
	if schema.Items != nil {
		values = schema.Items
	}
	return strings.Join(append(parts, boundTexts(values, schema)...), "; ")
}

// boundTexts are the values that a schema allows, and how many.
func boundTexts(values, schema *jsonschema.Schema) []string {
	var parts []string
	if len(values.Enum) > 0 {
		var texts []string
		for _, value := range values.Enum {
			texts = append(texts, fmt.Sprintf("`%v`", value))
		}
		parts = append(parts, "one of "+strings.Join(texts, ", "))
	}
	for _, text := range []string{
		span(schema.Minimum, schema.Maximum, ""), span(schema.MinLength, schema.MaxLength, " characters"),
		span(schema.MinItems, schema.MaxItems, " items"),
	} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if values.Pattern != "" {
		parts = append(parts, "`"+values.Pattern+"`")
	}
	if len(schema.Default) > 0 {
		parts = append(parts, "default `"+defaultText(schema.Default)+"`")
	}
	return parts
}

// span tells two bounds, of which each may be missing.
func span[T int | float64](from, to *T, unit string) string {
	switch {
	case from != nil && to != nil:
		return fmt.Sprintf("%v to %v%s", *from, *to, unit)
	case from != nil && *from != 0:
		return fmt.Sprintf("%v%s or more", *from, unit)
	case to != nil:
		return fmt.Sprintf("at most %v%s", *to, unit)
	default:
		return ""
	}
}

func defaultText(text json.RawMessage) string {
	var word string
	if json.Unmarshal(text, &word) == nil {
		return word
	}
	return string(text)
}
