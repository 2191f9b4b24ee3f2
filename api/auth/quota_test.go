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

// A rate and a burst that make no sense are refused by the names of their keys, with what is
// wanted.
func TestOrgConfigRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		rate  auth.Rate
		burst int
	}{
		"limits: {requests_per_second: 50}":                     {50, 100},
		"limits: {requests_per_second: 0.5}":                    {0.5, 10},
		"limits: {requests_per_second: 5.1}":                    {5.1, 11},
		"limits: {requests_per_second: '2', request_burst: 1}":  {2, 1},
		"limits: {requests_per_second: 1e6, request_burst: 30}": {1e6, 30},
	} {
		config, err := auth.ParseOrgConfig([]byte(text))
		if err != nil || config.Limits.RequestsPerSecond != want.rate || config.Limits.Burst() != want.burst {
			t.Errorf("%q: %+v, %v", text, config, err)
		}
	}
	const (
		wantRate  = "limits.requests_per_second: want a number from 0.001 to 1000000, such as 50 or 0.5"
		wantBurst = "limits.request_burst: want a whole number from 1 to 1000000"
	)
	for text, want := range map[string]string{
		"requests_per_second: 0": wantRate, "requests_per_second: -1": wantRate, "requests_per_second: many": wantRate,
		"requests_per_second: 0.0001": wantRate, "requests_per_second: 1000001": wantRate,
		"requests_per_second: .inf": wantRate, "requests_per_second: .nan": wantRate, "requests_per_second: NaN": wantRate,
		"requests_per_second: 5, request_burst: 0": wantBurst, "requests_per_second: 5, request_burst: -3": wantBurst,
		"requests_per_second: 5, request_burst: 1.5":     wantBurst,
		"requests_per_second: 5, request_burst: 1000001": wantBurst,
		"request_burst: 5": "limits.request_burst: want limits.requests_per_second beside it",
	} {
		_, err := auth.ParseOrgConfig([]byte("limits: {" + text + "}"))
		if !errors.Is(err, auth.ErrOrgConfig) || err.Error() != auth.ErrOrgConfig.Error()+": "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
