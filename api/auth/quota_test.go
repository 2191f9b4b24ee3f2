package auth_test

import (
	"errors"
	"testing"

	"packhorse/api/auth"
)

func TestOrgConfigQuotas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]auth.OrgLimits{
		"":                                    {},
		"limits: {quota_bytes: 10GiB}":        {QuotaBytes: 10 << 30},
		"limits: {quota_bytes: 1073741824}":   {QuotaBytes: 1 << 30},
		"limits: {repository_quota_bytes: 0}": {},
		"limits: {repository_quota_bytes: 5 KiB, quota_bytes: 3MiB}": {QuotaBytes: 3 << 20, RepositoryQuotaBytes: 5 << 10},
	} {
		if config, err := auth.ParseOrgConfig([]byte(text)); err != nil || config.Limits != want {
			t.Errorf("%q: %+v, %v", text, config, err)
		}
	}
	for _, size := range []string{"-1", "10GB", "1.5GiB", "GiB", "9223372036854775808", "8589934592GiB", "[]", "true"} {
		if _, err := auth.ParseOrgConfig([]byte("limits: {quota_bytes: " + size + "}")); !errors.Is(err, auth.ErrOrgConfig) {
			t.Errorf("%s: %v, want ErrOrgConfig", size, err)
		}
	}
}
