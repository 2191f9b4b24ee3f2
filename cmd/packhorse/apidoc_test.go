package main_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/rest"
	"packhorse/fuzz/oracle"
)

// TestAPIDocument runs the examples of docs/api.md in one shell beside packhorse dev, and compares
// their answers with the page: as they are, and through a proxy that makes each call where the path
// names the repository. An id of the page stands for the same object everywhere.
func TestAPIDocument(t *testing.T) {
	t.Parallel()
	t.Run("as they are", func(t *testing.T) {
		t.Parallel()
		runExamples(t, func(lines string) string { return lines }, "json", "http", "text")
	})
	t.Run("named", func(t *testing.T) {
		t.Parallel()
		runExamples(t, func(lines string) string {
			server := regexp.MustCompile(`PACKHORSE=(http://[0-9.:]+)`).FindStringSubmatch(lines)
			if server == nil {
				t.Fatalf("no server in %q", lines)
			}
			return lines + "\nPACKHORSE=" + namingProxy(t, server[1])
		}, "json", "text") // a proxy sends the headers in an order of its own
	})
}

// namingProxy is a proxy that makes each call of the API where the path names the repository, which
// is that of the token.
func namingProxy(t *testing.T, server string) string {
	t.Helper()
	paths := make(map[string]string)
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		paths[route.Method+" "+route.Path] = route.Named
	}
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		path, ok := paths[r.In.Method+" "+r.In.URL.Path]
		if !ok {
			return
		}
		var body struct{ Name, ID string }
		if strings.HasSuffix(path, "}") && !strings.HasSuffix(path, "{n}") {
			sent, err := io.ReadAll(r.In.Body)
			if err == nil {
				err = json.Unmarshal(sent, &body)
			}
			if err != nil {
				t.Errorf("%s %s: %v", r.In.Method, r.In.URL.Path, err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(sent))
		}
		r.Out.URL.RawPath = strings.NewReplacer("{n}", url.PathEscape(claimed(r.In)), "{name}", url.PathEscape(body.Name),
			"{id}", url.PathEscape(body.ID)).Replace(path)
		if r.Out.URL.Path, err = url.PathUnescape(r.Out.URL.RawPath); err != nil {
			t.Error(err)
		}
	}})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// claimed is the repository that the token of a request names.
func claimed(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "none"
	}
	var claims struct{ Repo string }
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Repo == "" {
		return "none"
	}
	return claims.Repo
}

// runExamples runs the examples with the lines that packhorse dev prints, as prepare changes them,
// and compares answers of the given kinds.
func runExamples(t *testing.T, prepare func(lines string) string, kinds ...string) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	lines, _, _ := strings.Cut(dev(t, filepath.Join(work, "packhorse-data")), "\n\n")
	sh := startShell(t, work)
	sh.run(t, prepare(lines)+"\nPATH='"+filepath.Dir(bin)+"':$PATH\n")
	said := &sayings{ids: make(map[string]string)}
	answers := 0
	for _, example := range exampleForm.FindAllStringSubmatch(string(page), -1) {
		command, kind, want := example[1], example[2], example[3]
		got := sh.run(t, said.translated(command))
		if !slices.Contains(kinds, kind) {
			continue
		}
		answers++
		same := said.text(want, got)
		if kind == "json" {
			same = said.stream(want, got)
		}
		if same != nil {
			t.Errorf("the page has another answer to\n%s%v\nit is\n%s", command, same, got)
		}
	}
	if answers < 30 {
		t.Errorf("the page has only %d answers: the test looks at the wrong place", answers)
	}
}

// exampleForm is a command and, right behind it, its answer if the page has one.
var exampleForm = regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:```(json|http|text)\n(.*?)```\n)?")

// commandShell is a shell that runs one command after the other.
type commandShell struct {
	in  io.Writer
	out *bufio.Reader
}

// startShell starts a shell that lasts as long as the test.
func startShell(t *testing.T, dir string) *commandShell {
	t.Helper()
	cmd := exec.Command("bash") // ended below
	cmd.Dir, cmd.Env = dir, oracle.EnvOutside(dir)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // Wait reports a shell that has ended
		if err := cmd.Wait(); err != nil || complaints.Len() > 0 {
			t.Errorf("the shell: %v\n%s", err, complaints.String())
		}
	})
	return &commandShell{in, bufio.NewReader(out)}
}

// run returns the output of a command.
func (s *commandShell) run(t *testing.T, command string) string {
	t.Helper()
	const end = "=== the end of the answer ==="
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '\\n%%s\\n' '%s'\n", command, end); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after\n%s%s", err, command, printed.String())
		}
		if line == end+"\n" {
			return strings.TrimSuffix(printed.String(), "\n")
		}
		printed.WriteString(line)
	}
}

// sayings compares the page with the answers of a server. Ids differ from run to run, and so do
// times and sizes.
type sayings struct {
	ids map[string]string // of the page, to those of the server
	// amounts is set for what commands print for people: see amountForms. Columns may have another
	// width, rows that begin with the id of a server another order, and lines of a log do not count.
	amounts bool
}

var (
	idForm = regexp.MustCompile(`\b(?:[0-9a-f]{40,64}|[0-9a-f]{32}|[0-9a-f]{16})\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	// changing matches text that differs from run to run: an id, a time, a request id; and omissions
	// of the page.
	changing = regexp.MustCompile(idForm.String() +
		`|\d{4}-\d\d-\d\dT[0-9:.]+Z|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT|\b[0-9a-f]{12}-[0-9a-z]+\b|…`)
	// amountForms match what else differs where people read it. Other numbers are those of the page.
	amountForms = []*regexp.Regexp{
		regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC)?`),          // a time
		regexp.MustCompile(`\b(?:in )?\d+ (?:second|minute|hour|day)s?\b(?: ago)?`), // an age
		regexp.MustCompile(`\b\d+(?:\.\d+)? (?:[KMGT]iB|B)\b`),                      // a size
		regexp.MustCompile(`\b\d+ (?:byte|file|object|row|ref)s?\b`),
		regexp.MustCompile(`\b\d+(?:\.\d+)?(?:ms|µs|s)\b`), // a duration
		regexp.MustCompile(`\bprocess \d+\b`),
		regexp.MustCompile(`  +`), // between columns
	}
	logLine   = regexp.MustCompile(`(?m)^time=\S+ level=(?:INFO|WARN) .*\n`)
	serverRow = regexp.MustCompile(`^[0-9a-f]{32} +`)
)

// next finds the next text that differs from run to run, and says what may stand in its place.
func (s *sayings) next(text string) (at []int, form string) {
	at, form = changing.FindStringIndex(text), "(?:"+changing.String()+")"
	if !s.amounts {
		return at, form
	}
	for _, amount := range amountForms {
		if other := amount.FindStringIndex(text); other != nil && (at == nil || other[0] < at[0]) {
			at, form = other, "(?:"+amount.String()+")"
		}
	}
	return at, form
}

// sortRows sorts each run of rows that begin with the id of a server by what is behind it.
func sortRows(text string) string {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		rows := 0
		for i+rows < len(lines) && serverRow.MatchString(lines[i+rows]) {
			rows++
		}
		slices.SortFunc(lines[i:i+rows], func(a, b string) int {
			return strings.Compare(serverRow.ReplaceAllString(a, ""), serverRow.ReplaceAllString(b, ""))
		})
		i += rows
	}
	return strings.Join(lines, "\n")
}

// translated is a command with the ids that the server has given.
func (s *sayings) translated(command string) string {
	return idForm.ReplaceAllStringFunc(command, func(id string) string {
		if known, ok := s.ids[id]; ok {
			return known
		}
		return id
	})
}

// text returns the difference between the answer of the server and the page.
func (s *sayings) text(want, got string) error {
	var form strings.Builder
	var fresh []string
	if s.amounts {
		want, got = sortRows(want), sortRows(logLine.ReplaceAllString(got, ""))
	}
	rest := strings.TrimSpace(want)
	for {
		at, other := s.next(rest)
		if at == nil {
			break
		}
		form.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		word := rest[at[0]:at[1]]
		rest = rest[at[1]:]
		known, ok := s.ids[word]
		switch isID := idForm.FindString(word) == word; {
		case word == "…":
			form.WriteString(`(?s:.*)`)
		case ok || isID && strings.Trim(word, "0") == "":
			if !ok {
				known = word
			}
			form.WriteString(regexp.QuoteMeta(known))
		case isID:
			fresh = append(fresh, word)
			form.WriteString("(" + idForm.String() + ")")
		default:
			form.WriteString(other)
		}
	}
	form.WriteString(regexp.QuoteMeta(rest))
	found := regexp.MustCompile("^" + form.String() + "$").
		FindStringSubmatch(strings.TrimSpace(strings.ReplaceAll(got, "\r\n", "\n")))
	if found == nil {
		return fmt.Errorf("%q is not %q", got, want)
	}
	for i, id := range fresh {
		s.ids[id] = found[i+1]
	}
	return nil
}

// stream is text for some JSON values.
func (s *sayings) stream(want, got string) error {
	wanted, given := json.NewDecoder(strings.NewReader(want)), json.NewDecoder(strings.NewReader(got))
	for {
		var a, b any
		err1, err2 := wanted.Decode(&a), given.Decode(&b)
		if errors.Is(err1, io.EOF) && errors.Is(err2, io.EOF) {
			return nil
		}
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := s.value("", a, b); err != nil {
			return err
		}
	}
}

func (s *sayings) value(name string, want, got any) error {
	differs := fmt.Errorf("%s is %v, not %v", name, got, want)
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok || len(object) != len(want) {
			return differs
		}
		for key, member := range want {
			given, ok := object[s.translated(key)]
			if !ok {
				return fmt.Errorf("%s has no %s", name, key)
			}
			if err := s.value(key, member, given); err != nil {
				return err
			}
		}
	case []any:
		array, ok := got.([]any)
		if !ok || len(array) != len(want) {
			return differs
		}
		for i := range want {
			if err := s.value(name, want[i], array[i]); err != nil {
				return err
			}
		}
	case string:
		text, ok := got.(string)
		if !ok {
			return differs
		}
		if name == "cursor" || name == "next_cursor" {
			return nil // it may hold an id
		}
		return s.text(want, text)
	default:
		if want != got && name != "pack_bytes" {
			return differs
		}
	}
	return nil
}
