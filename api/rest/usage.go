package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// usageJSON is what a repository stores: docs/api.md, "Repositories".
type usageJSON struct {
	StoredBytes   int64         `json:"stored_bytes"`
	SharedBytes   int64         `json:"shared_bytes"`
	BorrowedBytes int64         `json:"borrowed_bytes"`
	Objects       int64         `json:"objects"`
	Refs          uint64        `json:"refs"`
	LastWrite     string        `json:"last_write"`
	Quota         *quotaJSON    `json:"quota,omitempty"`
	Organization  *orgQuotaJSON `json:"organization,omitempty"`
}

// orgQuotaJSON is the quota of an organization, in which deleted repositories count until they are
// purged.
type orgQuotaJSON struct {
	quotaJSON
	DeletedBytes int64 `json:"deleted_bytes"`
}

// quotaJSON is a quota, and what is left of it.
type quotaJSON struct {
	StoredBytes int64 `json:"stored_bytes"`
	QuotaBytes  int64 `json:"quota_bytes"`
	LeftBytes   int64 `json:"left_bytes"`
}

// quotaOf returns nil for no quota.
func quotaOf(limit, stored int64) *quotaJSON {
	if limit == 0 {
		return nil
	}
	return &quotaJSON{StoredBytes: stored, QuotaBytes: limit, LeftBytes: max(limit-stored, 0)}
}

// Usage answers GET /repos/usage.
func (d *Door) Usage(x exchange.Exchange, grant *auth.Grant) error {
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	usage, err := repo.Usage(x.Context())
	if err != nil {
		return err
	}
	written := usage.Refs.Changed
	if written.IsZero() {
		written = usage.Created
	}
	var organization *orgQuotaJSON
	if q := quotaOf(usage.Quotas.Organization, usage.OrganizationBytes); q != nil {
		organization = &orgQuotaJSON{*q, usage.DeletedBytes}
	}
	return answer(x, http.StatusOK, usageJSON{
		StoredBytes:   usage.Stored.Bytes,
		SharedBytes:   usage.Shared.Bytes,
		BorrowedBytes: usage.Borrowed.Bytes,
		Objects:       usage.Stored.Count,
		Refs:          usage.Refs.RefCount,
		LastWrite:     timestamp(written),
		Quota:         quotaOf(usage.Quotas.Repository, usage.Stored.Bytes),
		Organization:  organization,
	})
}
