package contract

import "packhorse/api/openapi"

// Rehearsal is the field of a write's body that asks for a dry run.
type Rehearsal struct {
	DryRun bool `json:"dry_run" jsonschema:"makes every check and answers as the call would, and changes nothing"`
}

// Rehearsed is the field of an answer that tells a dry run.
type Rehearsed struct {
	DryRun bool `json:"dry_run,omitempty" jsonschema:"true in a dry run: nothing has changed"`
}

// dryRunFlag is the same for a deletion, which may have no body.
var dryRunFlag = openapi.Parameter{
	Name: "dry_run", In: openapi.InQuery, Type: false, Schema: "default=false",
	Description: "Makes every check and answers as the call would, and changes nothing.",
}
