package upstream_test

import (
	"errors"
	"strings"
	"testing"

	"packhorse/engine/upstream"
)

func TestOriginComplete(t *testing.T) {
	t.Parallel()
	own := map[string]string{"gitlab": "https://git.example.com/root/", "github": "http://ghe.example.com:8080"}
	tests := map[string]struct {
		origin upstream.Origin
		host   string
		bases  map[string]string
		url    string
		field  string // of the error
	}{
		"github":    {origin: upstream.Origin{Provider: "github"}, url: "https://github.com/o/n.git"},
		"gitlab":    {origin: upstream.Origin{Provider: "gitlab"}, url: "https://gitlab.com/o/n.git"},
		"bitbucket": {origin: upstream.Origin{Provider: "bitbucket"}, url: "https://bitbucket.org/o/n.git"},
		"gitea":     {origin: upstream.Origin{Provider: "gitea"}, url: "https://gitea.com/o/n.git"},
		"forgejo":   {origin: upstream.Origin{Provider: "forgejo"}, url: "https://codeberg.org/o/n.git"},
		"codeberg":  {origin: upstream.Origin{Provider: "codeberg"}, url: "https://codeberg.org/o/n.git"},
		"sourcehut": {origin: upstream.Origin{Provider: "sr.ht"}, url: "https://git.sr.ht/~o/n"},
		"sourcehut, with its tilde": {
			origin: upstream.Origin{Provider: "sr.ht", Owner: "~o"}, url: "https://git.sr.ht/~o/n",
		},
		"a host": {
			origin: upstream.Origin{Provider: "gitea"},
			host:   "git.example.com:3000",
			url:    "https://git.example.com:3000/o/n.git",
		},
		"an IPv6 host": {
			origin: upstream.Origin{Provider: "gitea"}, host: "[2001:db8::1]:3000", url: "https://[2001:db8::1]:3000/o/n.git",
		},
		"a base": {
			origin: upstream.Origin{Provider: "gitlab"}, bases: own, url: "https://git.example.com/root/o/n.git",
		},
		"a base of GitHub": {
			origin: upstream.Origin{Provider: "github"}, bases: own, url: "http://ghe.example.com:8080/o/n.git",
		},
		"a host wins over the base": {
			origin: upstream.Origin{Provider: "gitlab"}, host: "h", bases: own, url: "https://h/o/n.git",
		},
		"nested groups": {
			origin: upstream.Origin{Provider: "gitlab", Owner: "a/b/c"}, url: "https://gitlab.com/a/b/c/n.git",
		},
		"the name ends in .git": {
			origin: upstream.Origin{Provider: "gitlab", Name: "n.git"}, url: "https://gitlab.com/o/n.git",
		},
		"public": {
			origin: upstream.Origin{Provider: "github", Public: true}, url: "https://github.com/o/n.git",
		},
		"public elsewhere":        {origin: upstream.Origin{Provider: "gitlab", Public: true}, field: "auth.auth_type"},
		"no such provider":        {origin: upstream.Origin{Provider: "cvs"}, field: "provider"},
		"a host for GitHub":       {origin: upstream.Origin{Provider: "github"}, host: "h", field: "upstream_host"},
		"a host with a path":      {origin: upstream.Origin{Provider: "gitea"}, host: "h/x", field: "upstream_host"},
		"a host with a user":      {origin: upstream.Origin{Provider: "gitea"}, host: "u@h", field: "upstream_host"},
		"a host with a scheme":    {origin: upstream.Origin{Provider: "gitea"}, host: "http://h", field: "upstream_host"},
		"a host with a query":     {origin: upstream.Origin{Provider: "gitea"}, host: "h?x", field: "upstream_host"},
		"a host with a fragment":  {origin: upstream.Origin{Provider: "gitea"}, host: "h#x", field: "upstream_host"},
		"an owner that climbs":    {origin: upstream.Origin{Provider: "gitea", Owner: "a/.."}, field: "owner"},
		"an owner with a percent": {origin: upstream.Origin{Provider: "gitea", Owner: "%2e%2e"}, field: "owner"},
		"an owner with a space":   {origin: upstream.Origin{Provider: "gitea", Owner: "a b"}, field: "owner"},
		"an owner of many segments": {
			origin: upstream.Origin{Provider: "gitlab", Owner: strings.Repeat("a/", 21) + "a"}, field: "owner",
		},
		"a name with a slash":      {origin: upstream.Origin{Provider: "gitea", Name: "a/b"}, field: "name"},
		"a name that is .git":      {origin: upstream.Origin{Provider: "gitea", Name: ".git"}, field: "name"},
		"a name with a line break": {origin: upstream.Origin{Provider: "gitea", Name: "a\nb"}, field: "name"},
		"a name with a question":   {origin: upstream.Origin{Provider: "gitea", Name: "a?service=x"}, field: "name"},
		"a name that is too long": {
			origin: upstream.Origin{Provider: "gitea", Name: strings.Repeat("n", 256)}, field: "name",
		},
		"an owner that is missing":   {origin: upstream.Origin{Provider: "gitea", Owner: "-"}, field: "owner"},
		"sourcehut without an owner": {origin: upstream.Origin{Provider: "sr.ht", Owner: "-"}, field: "owner"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := test.origin
			switch o.Owner {
			case "":
				o.Owner = "o"
			case "-":
				o.Owner = ""
			}
			if o.Name == "" {
				o.Name = "n"
			}
			err := o.Complete(test.host, test.bases)
			var fault *upstream.OriginError
			switch {
			case test.field != "":
				if !errors.As(err, &fault) || fault.Field != test.field || !errors.Is(err, upstream.ErrOrigin) {
					t.Errorf("error is %v", err)
				}
			case err != nil || o.URL() != test.url:
				t.Errorf("URL is %s, error %v", o.URL(), err)
			case o.User() == "":
				t.Error("there is no user name to go with a token")
			}
		})
	}
}
