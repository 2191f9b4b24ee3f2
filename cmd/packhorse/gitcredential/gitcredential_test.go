package gitcredential_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"packhorse/cmd/packhorse/gitcredential"
	"packhorse/engine"
)

func TestRead(t *testing.T) {
	t.Parallel()
	full := gitcredential.Request{Protocol: "https", Host: "h:1", Path: "a/b.git", Username: "u"}
	tests := map[string]struct {
		text string
		want gitcredential.Request
		err  error
	}{
		"all attributes": {text: "protocol=https\nhost=h:1\npath=a/b.git\nusername=u\n\n", want: full},
		"another order":  {text: "username=u\nhost=h:1\npath=a/b.git\nprotocol=https\n\n", want: full},
		"end without a blank line": {
			text: "protocol=https\nhost=h:1\npath=a/b.git\nusername=u", want: full,
		},
		"nothing after the blank line counts": {
			text: "host=h\n\npath=a\nno attribute\n", want: gitcredential.Request{Host: "h"},
		},
		"unknown attributes": {
			text: "capability[]=authtype\nwwwauth[]=Basic realm=\"x\"\nwwwauth[]=Bearer\npassword=p\npassword=q\nurl=https://x/y\nhost=h\n",
			want: gitcredential.Request{Host: "h"},
		},
		"names are exact":         {text: "Host=h\nhost =h\n host=h\n=h\n"},
		"equals sign in a value":  {text: "path=a=b\n", want: gitcredential.Request{Path: "a=b"}},
		"empty value":             {text: "path=\n"},
		"carriage return":         {text: "host=h\r\n", want: gitcredential.Request{Host: "h\r"}},
		"nothing":                 {},
		"blank line":              {text: "\n"},
		"no equals sign":          {text: "host=h\npath\n", err: gitcredential.ErrMalformed},
		"CRLF for a blank line":   {text: "host=h\n\r\n", err: gitcredential.ErrMalformed},
		"NUL":                     {text: "host=h\x00i\n", err: gitcredential.ErrMalformed},
		"NUL in an unknown one":   {text: "x=\x00\n", err: gitcredential.ErrMalformed},
		"host twice":              {text: "host=h\nhost=h\n", err: gitcredential.ErrMalformed},
		"path twice, first empty": {text: "path=\npath=a\n", err: gitcredential.ErrMalformed},
		"long line":               {text: "x=" + strings.Repeat("a", 1<<20), err: gitcredential.ErrMalformed},
	}
	for name, test := range tests {
		for how, reader := range map[string]io.Reader{
			"at once": strings.NewReader(test.text), "in halves": iotest.HalfReader(strings.NewReader(test.text)),
		} {
			if got, err := gitcredential.Read(reader); got != test.want || !errors.Is(err, test.err) {
				t.Errorf("%s, %s: %+v, %v; want %+v, %v", name, how, got, err, test.want, test.err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := gitcredential.Read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a broken pipe: %v", err)
	}
}

// A malformed request is not quoted: it may hold a password.
func TestReadTellsNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"secret", "password=secret\x00", "username=secret\nusername=secret\n"} {
		if _, err := gitcredential.Read(strings.NewReader(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		login gitcredential.Login
		want  string // "" for an error
	}{
		"with expiry": {
			gitcredential.Login{Username: "t", Password: "p", Expires: time.Unix(1700000000, 9)},
			"username=t\npassword=p\npassword_expiry_utc=1700000000\n",
		},
		"without expiry": {gitcredential.Login{Username: "t", Password: "p"}, "username=t\npassword=p\n"},
		"line end":       {gitcredential.Login{Username: "t", Password: "secret\nhost=x"}, ""},
		"NUL":            {gitcredential.Login{Username: "secret\x00", Password: "p"}, ""},
	}
	for name, test := range tests {
		var out strings.Builder
		err := test.login.Write(&out)
		if out.String() != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

func TestRepository(t *testing.T) {
	t.Parallel()
	const base = "https://git.example.com"
	tests := map[string]struct {
		server, protocol, host, path string
		want                         string // "" unless there is an answer
		refused                      bool   // with an error
	}{
		"remote":               {base, "https", "git.example.com", "web/site.git", "web/site", false},
		"without .git":         {base, "https", "git.example.com", "web/site", "web/site", false},
		"ephemeral":            {base, "https", "git.example.com", "web/site+ephemeral.git", "web/site", false},
		"import":               {base, "https", "git.example.com", "web/site+import.git", "web/site", false},
		"ephemeral, bare":      {base, "https", "git.example.com", "site+ephemeral", "site", false},
		"slashes at the end":   {base, "https", "git.example.com", "site.git//", "site", false},
		"LFS":                  {base, "https", "git.example.com", "web/site.git/info/lfs", "web/site", false},
		"LFS, a call":          {base, "https", "git.example.com", "web/site.git/info/lfs/objects/batch", "web/site", false},
		"named like a service": {base, "https", "git.example.com", "a/info/refs", "a/info/refs", false},
		"case of the host":     {"https://Git.example.com", "https", "gIT.Example.com", "a.git", "a", false},
		"default port asked":   {base, "https", "git.example.com:443", "a.git", "a", false},
		"default port told":    {base + ":443", "https", "git.example.com", "a.git", "a", false},
		"port":                 {base + ":8443", "https", "git.example.com:8443", "a.git", "a", false},
		"slash of the URL":     {base + "/", "https", "git.example.com", "a.git", "a", false},
		"loopback":             {"http://127.0.0.1:8080", "http", "127.0.0.1:8080", "a.git", "a", false},
		"loopback, IPv6":       {"http://[::1]:8080", "http", "[::1]:8080", "a.git", "a", false},
		"below a path":         {base + "/git/", "https", "git.example.com", "git/a.git", "a", false},

		"another host":           {base, "https", "evil.example.com", "a.git", "", false},
		"longer host":            {base, "https", "git.example.com.evil.org", "a.git", "", false},
		"subdomain":              {base, "https", "x.git.example.com", "a.git", "", false},
		"host with a dot":        {base, "https", "git.example.com.", "a.git", "", false},
		"another port":           {base, "https", "git.example.com:8443", "a.git", "", false},
		"port of another scheme": {base, "https", "git.example.com:80", "a.git", "", false},
		"another protocol":       {base, "http", "git.example.com", "a.git", "", false},
		"another protocol, port": {base, "http", "git.example.com:443", "a.git", "", false},
		"protocol in upper case": {base, "HTTPS", "git.example.com", "a.git", "", false},
		"certificate":            {base, "cert", "", "/a", "", false},
		"no host":                {base, "https", "", "a.git", "", false},
		"no protocol":            {base, "", "git.example.com", "a.git", "", false},
		"user in the host":       {base, "https", "git.example.com@evil.org", "a.git", "", false},
		"host after a user":      {base, "https", "evil.org@git.example.com", "a.git", "", false},
		"path in the host":       {base, "https", "git.example.com/x", "a.git", "", false},
		"fragment in the host":   {base, "https", "git.example.com#.evil.org", "a.git", "", false},
		"query in the host":      {base, "https", "git.example.com?.evil.org", "a.git", "", false},
		"escape in the host":     {base, "https", "git.example.co%6d", "a.git", "", false},
		"CR in the host":         {base, "https", "git.example.com\r", "a.git", "", false},
		"blank in the host":      {base, "https", "git.example.com ", "a.git", "", false},
		"empty port":             {base + ":8443", "https", "git.example.com:", "a.git", "", false},
		"outside of the path":    {base + "/git", "https", "git.example.com", "a.git", "", false},
		"beside the path":        {base + "/git", "https", "git.example.com", "gitx/a.git", "", false},
		"another path's case":    {base + "/git", "https", "git.example.com", "GIT/a.git", "", false},

		"no path":               {base, "https", "git.example.com", "", "", true},
		"dot segments":          {base, "https", "git.example.com", "a/../b.git", "", true},
		"dot":                   {base, "https", "git.example.com", "./b.git", "", true},
		"empty segment":         {base, "https", "git.example.com", "a//b.git", "", true},
		"slash at the start":    {base, "https", "git.example.com", "/a.git", "", true},
		"only .git":             {base, "https", "git.example.com", ".git", "", true},
		"only a variant":        {base, "https", "git.example.com", "+ephemeral.git", "", true},
		"repository in another": {base, "https", "git.example.com", "a.git/b.git", "", true},
		"other characters":      {base, "https", "git.example.com", "a b.git", "", true},
		"CR":                    {base, "https", "git.example.com", "a.git\r", "", true},
		"reserved":              {base, "https", "git.example.com", "org.git", "", true},
		"escape":                {base, "https", "git.example.com", "a%2e%2e/b.git", "", true},
		"below, dot segments":   {base + "/git", "https", "git.example.com", "git/../a.git", "", true},
	}
	for name, test := range tests {
		server, err := gitcredential.ParseServer(test.server, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, ours, err := server.Repository(gitcredential.Request{Protocol: test.protocol, Host: test.host, Path: test.path})
		if got != test.want || ours != (test.want != "" || test.refused) || (err != nil) != test.refused {
			t.Errorf("%s: %q, %t, %v; want %q, refused %t", name, got, ours, err, test.want, test.refused)
		}
		if errors.Is(err, gitcredential.ErrNoPath) != (test.refused && test.path == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		plain bool
		ok    bool
	}{
		"HTTPS":                 {"https://git.example.com", false, true},
		"HTTP":                  {"http://git.example.com", false, false},
		"HTTP, allowed":         {"http://git.example.com", true, true},
		"localhost":             {"http://LocalHost:8080", false, true},
		"loopback":              {"http://127.8.9.1", false, true},
		"loopback, IPv6":        {"http://[::1]", false, true},
		"private address":       {"http://10.0.0.1", false, false},
		"named like a loopback": {"http://127.0.0.1.example.com", false, false},
		"named like localhost":  {"http://localhost.example.com", false, false},
		"SSH":                   {"ssh://git.example.com", true, false},
		"no scheme":             {"git.example.com", true, false},
		"no host":               {"https:///a", true, false},
		"only a port":           {"https://:443", true, false},
		"user and password":     {"https://u:secret@git.example.com", true, false},
		"password, malformed":   {"https://u:secret@git.example.com:x", true, false},
		"query":                 {"https://git.example.com?secret", true, false},
		"empty query":           {"https://git.example.com?", true, false},
		"fragment":              {"https://git.example.com#a", true, false},
		"empty":                 {"", true, false},
	}
	for name, test := range tests {
		_, err := gitcredential.ParseServer(test.text, test.plain)
		if (err == nil) != test.ok || err != nil && strings.Contains(err.Error(), ":secret") {
			t.Errorf("%s: %v, want ok %t", name, err, test.ok)
		}
	}
}

// FuzzRead checks that what is read can be written and read again, and that a request is answered
// only when it is for exactly the server, and then for a valid name that its path begins with.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"protocol=https\nhost=git.example.com\npath=git/a/b.git\n\n",
		"protocol=https\nhost=GIT.example.com:443\npath=git/a+ephemeral.git\nusername=u\nwwwauth[]=Basic\n",
		"protocol=http\nhost=git.example.com:443\npath=git/../a\n",
		"protocol=https\nhost=git.example.com@evil.org\npath=git/a\n",
		"protocol=https\nhost=git.example.com#evil.org\n",
		"host=a\nhost=b\n", "x\n", "x=\x00", "\n",
	} {
		f.Add([]byte(seed))
	}
	server, err := gitcredential.ParseServer("https://git.example.com/git", false)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		request, err := gitcredential.Read(strings.NewReader(string(text)))
		if err != nil {
			if !errors.Is(err, gitcredential.ErrMalformed) || request != (gitcredential.Request{}) {
				t.Fatalf("%+v, %v", request, err)
			}
			return
		}
		written := "protocol=" + request.Protocol + "\nhost=" + request.Host + "\npath=" + request.Path +
			"\nusername=" + request.Username + "\n"
		if again, err := gitcredential.Read(strings.NewReader(written)); err != nil || again != request {
			t.Fatalf("%+v, then %+v, %v", request, again, err)
		}
		name, ours, err := server.Repository(request)
		if !ours {
			if name != "" || err != nil {
				t.Fatalf("not ours, and %q, %v", name, err)
			}
			return
		}
		host := strings.TrimSuffix(strings.ToLower(request.Host), ":443")
		if request.Protocol != "https" || strings.TrimSuffix(host, ":") != "git.example.com" {
			t.Fatalf("answered to %+v", request)
		}
		if err == nil && (engine.CheckRepositoryName(name) != nil || !strings.HasPrefix(request.Path, "git/"+name)) {
			t.Fatalf("repository %q of %q", name, request.Path)
		}
	})
}
