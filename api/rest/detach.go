package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// Detach answers DELETE /repos/base.
func (d *Door) Detach(x exchange.Exchange, grant *auth.Grant) error {
	var request dryRun
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	repo, by, err := d.write(x, grant, "DELETE /repos/base")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	sign(&by, body)
	detached, err := repo.Detach(x.Context(), by)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, detached.Sequence, struct {
		Message string `json:"message"`
	}{"the repository has no upstream"})
}

// PullUpstream answers POST /repos/pull-upstream.
func (d *Door) PullUpstream(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		Ref string `json:"ref"`
		dryRun
	}
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	repo, by, err := d.write(x, grant, "POST /repos/pull-upstream")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	sign(&by, body)
	sequence, err := repo.PullUpstream(x.Context(), by, request.Ref)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusAccepted, sequence, struct {
		Message string `json:"message"`
	}{"the sync with the upstream is under way"})
}
