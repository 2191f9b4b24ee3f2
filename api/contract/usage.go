package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Usage is what a repository stores.
type Usage struct {
	StoredBytes   int64     `json:"stored_bytes" jsonschema:"of its objects as they are stored, without those of its base"`
	SharedBytes   int64     `json:"shared_bytes" jsonschema:"the part of them that forks read, too"`
	BorrowedBytes int64     `json:"borrowed_bytes" jsonschema:"of the objects that it shares with its base, as a fork"`
	Objects       int64     `json:"objects" jsonschema:"the objects in stored_bytes; one that is stored twice counts twice"`
	Refs          uint64    `json:"refs" jsonschema:"in all namespaces"`
	LastWrite     string    `json:"last_write" schema:"Time" jsonschema:"when a ref was last changed, or the repository created"`
	Quota         *Quota    `json:"quota,omitempty" jsonschema:"of the repository, if it has one"`
	Organization  *OrgQuota `json:"organization,omitempty" jsonschema:"the quota of all its repositories together, if there is one"`
}

// OrgQuota is the quota of an organization.
type OrgQuota struct {
	Quota
	DeletedBytes int64 `json:"deleted_bytes" jsonschema:"of deleted repositories, in stored_bytes until they are purged; forks may still use a part"`
}

// Quota is a quota, and what is left of it.
type Quota struct {
	StoredBytes int64 `json:"stored_bytes" jsonschema:"what counts"`
	QuotaBytes  int64 `json:"quota_bytes"`
	LeftBytes   int64 `json:"left_bytes"`
}

// QuotaFailure is the error of a write that is too large, or would pass a quota.
type QuotaFailure struct {
	Failure
	Quota *PassedQuota `json:"quota,omitempty" jsonschema:"if the write would pass a quota"`
}

// PassedQuota is a quota that a write would pass.
type PassedQuota struct {
	Of         string `json:"of" schema:"enum=organization|repository"`
	QuotaBytes int64  `json:"quota_bytes"`
	UsedBytes  int64  `json:"used_bytes" jsonschema:"with other writes under way"`
}

func usageCalls() []call {
	return []call{{
		v1: "/repos/usage", path: "/repos/{n}/usage",
		Operation: openapi.Operation{
			Method: http.MethodGet, ID: "usage", Group: repositories,
			Summary:     "tells what the repository stores, and its quotas",
			Description: "A write that would pass a quota is 413 and stores nothing.",
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "What it stores.", Type: Usage{},
				Example: `{"stored_bytes": 286, "shared_bytes": 0, "borrowed_bytes": 0, "objects": 5, "refs": 1,
 "last_write": "2026-11-22T09:27:21.766Z",
 "quota": {"stored_bytes": 286, "quota_bytes": 1000000, "left_bytes": 999714}}`,
			}},
		},
	}}
}
