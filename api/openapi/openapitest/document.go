package openapitest

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/datamodel"
)

// CheckDocument holds a document against the meta-schema of OpenAPI 3.1, and each of its schemas
// against JSON Schema. It has another reader of OpenAPI build a model of it, which follows every
// reference.
func CheckDocument(document []byte) error {
	var rules jsonschema.Schema
	if err := json.Unmarshal([]byte(datamodel.OpenAPI31SchemaData), &rules); err != nil {
		return fmt.Errorf("openapitest: the meta-schema: %w", err)
	}
	resolved, err := rules.Resolve(nil)
	if err != nil {
		return fmt.Errorf("openapitest: the meta-schema: %w", err)
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return fmt.Errorf("openapitest: %w", err)
	}
	if err := resolved.Validate(value); err != nil {
		return fmt.Errorf("openapitest: the document is not OpenAPI 3.1: %w", err)
	}
	read, err := libopenapi.NewDocument(document)
	if err != nil {
		return fmt.Errorf("openapitest: %w", err)
	}
	if _, err := read.BuildV3Model(); err != nil {
		return fmt.Errorf("openapitest: %w", err)
	}
	c, err := New(document)
	if err != nil {
		return err
	}
	for name, schema := range c.schemas {
		if _, err := c.resolve(schema); err != nil {
			return fmt.Errorf("openapitest: schema %s: %w", name, err)
		}
	}
	return nil
}
