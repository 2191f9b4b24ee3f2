package auth_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"packhorse/api/auth"
	"packhorse/engine/organization"
)

// TestReadFolder reads folders that are to be stored: what cannot be understood is refused by one
// line that names the file, and what was expected.
func TestReadFolder(t *testing.T) {
	t.Parallel()
	good := string(p256().public)
	tests := map[string]struct {
		files map[string]string // beside acme/good.pem
		want  string            // of the error; "" for none
	}{
		"as it should be": {files: map[string]string{
			"acme/org.yaml": "webhooks: [{url: 'https://ci.example/h', secret: s3cr3t}]\nsigning_keys: [a.asc]\n", "acme/a.asc": "x",
			"beta/k.pem": good, ".git/config": "x", "acme/..data/k.pem": "x",
		}},
		"private key":           {map[string]string{"acme/k.pem": string(ed().private)}, `acme/k.pem: want one public key, PKIX PEM: PEM block "PRIVATE KEY", want PUBLIC KEY`},
		"key and private":       {map[string]string{"acme/k.pem": good + string(ed().private)}, "acme/k.pem: want one public key, PKIX PEM: more than one PEM block"},
		"weak key":              {map[string]string{"acme/k.pem": string(weakRSA(t))}, "acme/k.pem: want one public key, PKIX PEM: RSA of 1024 bits, want 2048 or more"},
		"no PEM":                {map[string]string{"acme/k.pem": "hello"}, "acme/k.pem: want one public key, PKIX PEM: no PEM block"},
		"empty key":             {map[string]string{"acme/k.pem": ""}, "acme/k.pem: want one public key"},
		"key of no name":        {map[string]string{"acme/k k.pem": good}, "acme/k k.pem: want a key ID before .pem"},
		"long file":             {map[string]string{"acme/k.pem": strings.Repeat("x", 1<<20)}, "acme/k.pem: want 262144 bytes at most"},
		"folder for a key":      {map[string]string{"acme/k.pem/x": "x"}, "acme/k.pem: want a file"},
		"unknown file":          {map[string]string{"acme/org.yml": ""}, "acme/org.yml: want KID.pem, org.yaml, or a file that signing_keys of org.yaml names"},
		"unknown setting":       {map[string]string{"acme/org.yaml": "webhook: [s3cr3t]"}, `acme/org.yaml: line 1: unknown key "webhook": the keys there are webhooks, signing_keys, upstreams, github_owners, custom_notes_refs, create_on_push, limits, keep_history`},
		"setting of a hook":     {map[string]string{"acme/org.yaml": "webhooks: [{uri: s3cr3t}]"}, `acme/org.yaml: line 1: unknown key "uri": the keys there are url, secret, events`},
		"value of a setting":    {map[string]string{"acme/org.yaml": "webhooks: s3cr3t"}, "acme/org.yaml: line 1: expected a list"},
		"no YAML":               {map[string]string{"acme/org.yaml": "a: b: s3cr3t"}, "acme/org.yaml: not YAML: "},
		"hook without a URL":    {map[string]string{"acme/org.yaml": "webhooks: [{url: s3cr3t, secret: s3cr3t}]"}, "acme/org.yaml: webhooks: number 1: want an http or https URL as its url"},
		"hook without a secret": {map[string]string{"acme/org.yaml": "webhooks: [{url: 'https://a.example/s3cr3t'}]"}, "acme/org.yaml: webhooks: number 1 has no secret"},
		"hook twice":            {map[string]string{"acme/org.yaml": "webhooks: [&h {url: 'https://a.example/s3cr3t', secret: x}, *h]"}, "acme/org.yaml: webhooks: the url of number 2 is listed twice"},
		"upstream":              {map[string]string{"acme/org.yaml": "upstreams: {gitlab: s3cr3t}"}, "acme/org.yaml: upstreams: gitlab: want an http or https URL"},
		"missing signer":        {map[string]string{"acme/org.yaml": "signing_keys: [gone.asc]"}, "acme/org.yaml: signing_keys: want a file gone.asc beside it"},
		"signer elsewhere":      {map[string]string{"acme/org.yaml": "signing_keys: [../x.asc]"}, "acme/org.yaml: signing_keys: "},
		"negative limit":        {map[string]string{"acme/org.yaml": "limits: {repositories: -1}"}, "acme/org.yaml: limits: want no negative number"},
		"no rate":               {map[string]string{"acme/org.yaml": "limits: {requests_per_second: 0}"}, "acme/org.yaml: limits.requests_per_second: want a number from 0.001 to 1000000, such as 50 or 0.5"},
		"organization's name":   {map[string]string{"ac me/k.pem": good}, "ac me: want the name of an organization"},
		"file among folders":    {map[string]string{"README": "x"}, "README: want folders only, one an organization"},
		"no key":                {map[string]string{"beta/org.yaml": ""}, "beta: no key: want a KID.pem"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := fstest.MapFS{"acme/good.pem": {Data: []byte(good)}}
			for path, text := range test.files {
				folder[path] = &fstest.MapFile{Data: []byte(text)}
			}
			orgs, err := auth.ReadFolder(folder)
			if test.want == "" {
				for path, text := range test.files {
					org, file, _ := strings.Cut(path, "/")
					hidden := strings.HasPrefix(org, ".") || strings.HasPrefix(file, ".")
					if stored, found := orgs[org][file]; found == hidden || found && string(stored) != text {
						t.Errorf("%s: read %t, %q", path, found, stored)
					}
				}
				if err != nil || len(orgs) != 2 {
					t.Errorf("read %v, %v", orgs, err)
				}
				return
			}
			if !errors.Is(err, auth.ErrFolder) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
			if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "s3cr3t") || strings.Contains(text, "auth") {
				t.Errorf("it says %q", text)
			}
		})
	}
	if _, err := auth.ReadFolder(fstest.MapFS{}); !errors.Is(err, auth.ErrFolder) {
		t.Errorf("a folder without anything: %v", err)
	}
}

// TestDescribe describes organizations and what differs between them, without secrets.
func TestDescribe(t *testing.T) {
	t.Parallel()
	hook := "webhooks: [{url: 'https://u:s3cr3t@ci.example/s3cr3t?s3cr3t', secret: %, events: [push]}]\n"
	more := "upstreams: {gitlab: 'https://u:s3cr3t@git.example'}\ngithub_owners: [a, b]\ncustom_notes_refs: false\n" +
		"keep_history: 2d\ncreate_on_push: true\n" +
		"signing_keys: [a.asc]\nlimits: {heavy_slots: 1, repositories: 2, quota_bytes: 1KiB, repository_quota_bytes: 3, requests_per_second: 2.5, request_burst: 7}\n"
	config := func(text, secret string) []byte { return []byte(strings.ReplaceAll(text, "%", secret)) }
	first := organization.Files{
		"k.pem": p256().public, "l.pem": ed().public, "a.asc": []byte("x"), "org.yaml": config(hook+more, "s3cr3t"),
	}
	var got []string
	for _, fact := range auth.Describe(first) {
		got = append(got, fact.Name+": "+fact.Value)
	}
	fingerprint := func(key pair) string {
		public, err := auth.ParsePublicKey(key.public)
		if err != nil {
			t.Fatal(err)
		}
		text, err := auth.Fingerprint(public)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	want := []string{
		"key k: ES256 " + fingerprint(p256()), "key l: EdDSA " + fingerprint(ed()),
		"create_on_push: true", "custom_notes_refs: false", "github_owners: a,b", "keep_history: 48h0m0s", "limits.heavy_slots: 1", "limits.quota_bytes: 1024",
		"limits.repositories: 2", "limits.repository_quota_bytes: 3", "limits.request_burst: 7", "limits.requests_per_second: 2.5", "signing key a.asc: SHA-256 2d711642b726b044",
		"upstreams.gitlab: git.example", "webhook ci.example 833c9512: push",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}

	changed := organization.Files{
		"k.pem": ed().public, "m.pem": ed().public, "org.yaml": config(hook+"limits: {repositories: 3}", "another"),
	}
	lines := auth.Differences(auth.Describe(first), auth.Describe(changed))
	for _, line := range []string{
		"key k changed: EdDSA " + fingerprint(ed()) + ", before ES256 " + fingerprint(p256()),
		"key l removed: it was EdDSA " + fingerprint(ed()), "key m added: EdDSA " + fingerprint(ed()),
		"limits.repositories changed: 3, before 2", "limits.quota_bytes removed: it was 1024",
		"webhook ci.example 833c9512 changed: a secret in it",
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %q in %q", line, lines)
		}
	}
	if len(lines) != 16 || strings.Contains(strings.Join(append(got, lines...), "\n"), "s3cr3t") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	if lines := auth.Differences(auth.Describe(first), auth.Describe(first)); lines != nil {
		t.Errorf("nothing differs: %q", lines)
	}
}
