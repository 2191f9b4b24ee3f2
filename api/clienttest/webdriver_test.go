//go:build clients

package clienttest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium that a test drives by the WebDriver protocol (W3C), which is JSON
// over HTTP to the program chromedriver.
type browser struct {
	t       *testing.T
	session string // URL
	where   string // the page that is visited, for messages
}

var driverStarted = regexp.MustCompile(`started successfully on port (\d+)`)

// openBrowser starts a Chromium with a profile of its own, and ends it with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	chromium, driver := need(t, "chromium", "chromium-browser"), need(t, "chromedriver")
	home := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, driver, "--port=0")
	cmd.Dir, cmd.Env = home, append(environment(), "HOME="+home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t}
	t.Cleanup(func() {
		if b.session != "" {
			_, _ = b.send(http.MethodDelete, "", nil) // ends Chromium
		}
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(out)
	port := ""
	for port == "" && lines.Scan() {
		if found := driverStarted.FindStringSubmatch(lines.Text()); found != nil {
			port = found[1]
		}
	}
	if port == "" {
		t.Fatal("chromedriver did not start")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	b.session = "http://127.0.0.1:" + port + "/session"
	var made struct {
		ID string `json:"sessionId"`
	}
	b.call(http.MethodPost, "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:loggingPrefs": map[string]string{"browser": "ALL"},
		"timeouts":          map[string]int{"script": 60_000},
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": []string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
			"--user-data-dir=" + filepath.Join(home, "profile"),
		}},
	}}}, &made)
	b.session += "/" + made.ID
	return b
}

// send makes a request of the session and returns the value of its answer.
func (b *browser) send(method, path string, body any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, b.session+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	var answer struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Value)
	}
	return answer.Value, nil
}

// call is send for a test that cannot go on without the answer; into may be nil.
func (b *browser) call(method, path string, body, into any) {
	b.t.Helper()
	value, err := b.send(method, path, body)
	if err == nil && into != nil {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		b.t.Fatalf("%s: %v", b.where, err)
	}
}

// run runs an async function's body in the page and reads what it returns; into may be nil.
func (b *browser) run(into any, script string, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	b.call(http.MethodPost, "/execute/async", map[string]any{
		"script": "const done = arguments[arguments.length - 1]; (async (...args) => {" + script +
			"})(...arguments).then((value) => done({ value }), (error) => done({ error: String(error.stack ?? error) }));",
		"args": args,
	}, &struct {
		Value any      `json:"value"`
		Error *failure `json:"error"`
	}{Value: into})
}

// failure is an error of a script; reading one fails.
type failure struct{}

// UnmarshalJSON returns the error of the script.
func (*failure) UnmarshalJSON(text []byte) error { return fmt.Errorf("script: %s", text) }

// size sets the width and height of the window in pixels, and whether the system is dark.
func (b *browser) size(width, height int, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.devtools("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
	})
	b.devtools("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
}

func (b *browser) devtools(command string, params map[string]any) {
	b.t.Helper()
	b.call(http.MethodPost, "/goog/cdp/execute", map[string]any{"cmd": command, "params": params}, nil)
}

// open loads a URL.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call(http.MethodPost, "/url", map[string]string{"url": url}, nil)
}

// keys types into the element that has the focus. Keys without a sign are those of WebDriver.
func (b *browser) keys(text string) {
	b.t.Helper()
	var element map[string]string
	b.call(http.MethodGet, "/element/active", nil, &element)
	for _, id := range element {
		b.call(http.MethodPost, "/element/"+id+"/value", map[string]string{"text": text}, nil)
	}
}

// picture returns a PNG of the window.
func (b *browser) picture() []byte {
	b.t.Helper()
	var text string
	b.call(http.MethodGet, "/screenshot", nil, &text)
	png, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// log returns what the browser has logged since the last call.
func (b *browser) log() []string {
	b.t.Helper()
	var entries []struct {
		Message string `json:"message"`
	}
	b.call(http.MethodPost, "/se/log", map[string]string{"type": "browser"}, &entries)
	var messages []string
	for _, e := range entries {
		messages = append(messages, e.Message)
	}
	return messages
}

// hasAlert reports whether a script has opened a dialog.
func (b *browser) hasAlert() bool {
	_, err := b.send(http.MethodGet, "/alert/text", nil)
	return err == nil || !strings.Contains(err.Error(), "no such alert")
}
