package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/fuzz/loopback"
)

// imageStore is where an image is built and run, without a daemon and without a registry.
type imageStore string

// run runs a command of buildah that succeeds, and returns what it prints.
func (s imageStore) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.command(args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("buildah %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return strings.TrimSpace(string(out))
}

func (s imageStore) command(args ...string) *exec.Cmd {
	own := []string{"--root=" + filepath.Join(string(s), "root"), "--runroot=" + filepath.Join(string(s), "run"), "--storage-driver=vfs"}
	return exec.Command("buildah", append(own, args...)...)
}

// TestImage builds the last stage of the Dockerfile and runs it, if PACKHORSE_DIST is set. What the
// first stage leaves comes from an image made here: TestDockerfileBuilds of cmd/packhorse runs that
// one's commands. It needs root and buildah.
func TestImage(t *testing.T) {
	if os.Getenv("PACKHORSE_DIST") == "" {
		t.Skip("PACKHORSE_DIST is not set")
	}
	if _, err := exec.LookPath("buildah"); err != nil || os.Getuid() != 0 {
		t.Skip("skipped: it needs root and buildah")
	}
	built := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(built, "out/packhorse"), "packhorse/cmd/packhorse")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, last, _ := strings.Cut(string(read(t, "../../Dockerfile")), "\nFROM scratch\n")
	files := map[string]string{
		"etc/ssl/certs/ca-certificates.crt": "", "first.dockerfile": "FROM scratch\nCOPY . /\n",
		"last.dockerfile": "FROM scratch\n" + strings.ReplaceAll(last, "--from=build ", "--from=localhost/built "),
	}
	for name, text := range files {
		path := filepath.Join(built, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(built, "out/data"), 0o755); err != nil {
		t.Fatal(err)
	}

	store := imageStore(t.TempDir())
	for _, image := range [][2]string{{"first", "localhost/built"}, {"last", "localhost/packhorse"}} {
		store.run(t, "build", "--quiet", "--isolation=chroot", "--format=docker",
			"--file="+filepath.Join(built, image[0]+".dockerfile"), "--tag="+image[1], built)
	}
	var image struct {
		Docker struct {
			Config struct {
				User            string
				Entrypoint, Cmd []string
				Healthcheck     struct{ Test []string }
				Volumes         map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(store.run(t, "inspect", "--type=image", "localhost/packhorse")), &image); err != nil {
		t.Fatal(err)
	}
	config := image.Docker.Config
	if _, there := config.Volumes["/data"]; config.User != "10001:10001" || !there ||
		!slices.Equal(config.Entrypoint, []string{"packhorse"}) || !slices.Equal(config.Cmd, []string{"serve"}) ||
		!slices.Equal(config.Healthcheck.Test, []string{"CMD", "packhorse", "healthcheck"}) {
		t.Errorf("the image: %+v", config)
	}

	container := store.run(t, "from", "localhost/packhorse")
	defer func() { store.run(t, "rm", container) }()
	address := loopback.FreeAddress(t)
	inside := func(args ...string) []string {
		return append([]string{"run", "--isolation=chroot", "--env=PACKHORSE_LISTEN=" + address, container, "--", "packhorse"}, args...)
	}
	if out := store.run(t, inside("version")...); !strings.HasPrefix(out, "packhorse ") {
		t.Errorf("packhorse version: %s", out)
	}
	server := store.command(inside("dev")...)
	ended := make(chan struct{})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = server.Wait() // ended by the signal below
	}()
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if said, err := get("http://" + address + "/readyz"); err == nil && said == "200 ready" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("/readyz: %s, %v", said, err)
		}
	}
	store.run(t, inside("healthcheck")...)
	// It has written into the volume, which lies somewhere in the store, as the user of the image.
	var owner uint32
	err := filepath.WalkDir(string(store), func(_ string, file fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server has just removed it
		}
		if err != nil || file.Name() != "dev.key" {
			return err
		}
		info, err := file.Info()
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			owner = stat.Uid
		}
		return nil
	})
	if err != nil || owner != 10001 {
		t.Errorf("the data belong to user %d, %v", owner, err)
	}
}

// get returns the status and the first line of an answer.
func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err := io.ReadAll(response.Body)
	line, _, _ := strings.Cut(string(text), "\n")
	return fmt.Sprintf("%d %s", response.StatusCode, line), err
}
