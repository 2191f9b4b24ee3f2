package s3_test

import (
	"errors"
	"strings"
	"testing"

	"packhorse/odb/file/s3"
)

func TestParseLocation(t *testing.T) {
	t.Parallel()
	good := map[string]s3.Location{
		"s3://git":                       {Bucket: "git"},
		"s3://git/":                      {Bucket: "git"},
		"s3://git/a/b-c.d/":              {Bucket: "git", Prefix: "a/b-c.d"},
		"s3://git/a?region=eu-central-1": {Bucket: "git", Prefix: "a", Region: "eu-central-1"},
		"s3://git?endpoint=https://s3.example.com/&path-style=true": {
			Bucket: "git", Endpoint: "https://s3.example.com", PathStyle: true,
		},
		"s3://git?path-style=false&endpoint=http://127.0.0.1:7070": {Bucket: "git", Endpoint: "http://127.0.0.1:7070"},
	}
	for text, want := range good {
		if got, err := s3.ParseLocation(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	bad := []string{
		"", "git", "s3:", "s3:git", "s3://", "s3:///a", "https://git/a", "s3://a", "s3://git:80/a", "s3://user@git/a",
		"s3://git/a#b", "s3://git/a//b", "s3://git/../b", "s3://git/a b", "s3://git/%2e%2e", "s3://git/ä",
		"s3://" + strings.Repeat("b", 64), "s3://git/" + strings.Repeat("p", 513), "s3://git?region=", "s3://git?regoin=x",
		"s3://git?region=a&region=b", "s3://git?path-style=yes", "s3://git?endpoint=s3.example.com",
		"s3://git?endpoint=ftp://x", "s3://git?endpoint=https://", "s3://git?endpoint=https://a@b", "s3://git?a=%",
		"s3://git?a=1;b=2", "s3://git\n",
	}
	for _, text := range bad {
		_, err := s3.ParseLocation(text)
		if !errors.Is(err, s3.ErrLocation) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "s3://BUCKET") {
			t.Errorf("%q: %v", text, err)
		}
	}
	location := s3.Location{Bucket: "git", Prefix: "a/b", Endpoint: "https://x", PathStyle: true}
	if got := location.String(); got != "s3://git/a/b" {
		t.Errorf("got %s", got)
	}
}
