package rest

import (
	"net/http"

	"packhorse/api/exchange"
	"packhorse/engine"
)

// dryRunName is the field of a body, or the parameter of a DELETE, that asks for a dry run.
const dryRunName = "dry_run"

// dryRun is that field of the body of a write.
type dryRun struct {
	DryRun bool `json:"dry_run"`
}

func (d *dryRun) isDryRun() bool { return d.DryRun }

// rehearses is the body of a write.
type rehearses interface{ isDryRun() bool }

// rehearse makes the actor's change a dry run if the body or the query asks for one. Its
// idempotency key then has no effect: nothing happens that could happen twice, and an answer from
// earlier would say nothing about now.
func rehearse(x exchange.Exchange, by *engine.Actor, body rehearses) error {
	dry := body.isDryRun()
	if x.Method() == http.MethodDelete && x.Query().Has(dryRunName) {
		asked, err := flagOf(x, dryRunName, dry)
		if err != nil {
			return err
		}
		if dry && !asked {
			return badRequest("dry_run: the query says false, and the body true")
		}
		dry = asked
	}
	if dry {
		by.DryRun, by.Receipt = true, nil
	}
	return nil
}
