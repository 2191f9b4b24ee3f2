// Command dist builds what a release consists of: a tarball for each platform, packages for Debian,
// a bill of materials for each binary, and the checksums of all. The same sources, version and Go
// make the same bytes.
//
//	go run ./cmd/dist -version v1.2.3 -time 1767225600 -out dist
//
// The map, by file: main builds and decides what goes where, tarball and deb write the formats,
// sbom tells what a binary is made of.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// platform is what a binary is built for.
type platform struct{ os, arch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}}

// release is what is built.
type release struct {
	version string
	time    time.Time // of all files
	out     string    // folder
	work    string    // folder of binaries
}

// entry is a file of a tarball or a package.
type entry struct {
	name string // with slashes
	mode int64
	data []byte
}

func main() {
	version := flag.String("version", "unknown", "version, as git describe prints it")
	seconds := flag.Int64("time", 0, "time of all files, in seconds since 1970")
	out := flag.String("out", "dist", "folder to make; what it holds is replaced")
	only := flag.String("platforms", "", "platforms with commas between them, as linux/amd64; all by default")
	flag.Parse()
	chosen, err := platformsOf(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(2)
	}
	if err := run(*version, time.Unix(*seconds, 0).UTC(), *out, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// platformsOf returns the platforms of a list with commas, all for none.
func platformsOf(list string) ([]platform, error) {
	if list == "" {
		return platforms, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(platforms, func(p platform) bool { return p.os+"/"+p.arch == name })
		if at < 0 {
			return nil, fmt.Errorf("-platforms: %q is not one of linux/amd64, linux/arm64, darwin/arm64", name)
		}
		chosen = append(chosen, platforms[at])
	}
	return chosen, nil
}

// run makes a release for some platforms in the folder out.
func run(version string, at time.Time, out string, chosen []platform) (err error) {
	work, err := os.MkdirTemp("", "packhorse-dist-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r := release{version: version, time: at, out: out, work: work}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	docs, err := r.documents()
	if err != nil {
		return err
	}
	for _, p := range chosen {
		if err := r.platform(p, docs); err != nil {
			return fmt.Errorf("%s/%s: %w", p.os, p.arch, err)
		}
	}
	return r.checksums()
}

// build compiles the binary for a platform, and returns its path.
func (r release) build(p platform) (string, error) {
	bin := filepath.Join(r.work, "packhorse-"+p.os+"-"+p.arch)
	build := exec.Command("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", bin, "packhorse/cmd/packhorse")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// documents are the files that are the same on all platforms: completions and the manual, which a
// binary for this machine prints, and those of the source.
func (r release) documents() ([]entry, error) {
	bin, err := r.build(platform{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	var docs []entry
	for shell, name := range map[string]string{"bash": "packhorse.bash", "zsh": "_packhorse", "fish": "packhorse.fish"} {
		script, err := exec.Command(bin, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion of %s: %w", shell, err)
		}
		docs = append(docs, entry{"completions/" + name, 0o644, script})
	}
	man := filepath.Join(r.work, "man")
	if out, err := exec.Command(bin, "man", man).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("manual: %w\n%s", err, out)
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"LICENSE": "LICENSE", "README.md": "README.md",
		"docs/deploy/packhorse.service": "packhorse.service", "docs/deploy/config.yaml": "config.yaml",
	}
	for _, page := range pages {
		files[filepath.Join(man, page.Name())] = "man/" + page.Name()
	}
	for from, name := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		docs = append(docs, entry{name, 0o644, data})
	}
	slices.SortFunc(docs, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return docs, nil
}

// platform writes the tarball, the bill of materials and, for Linux, the package of a platform.
func (r release) platform(p platform, docs []entry) error {
	bin, err := r.build(p)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(bin)
	if err != nil {
		return err
	}
	name := "packhorse-" + r.version + "-" + p.os + "-" + p.arch
	files := []entry{{name + "/packhorse", 0o755, binary}}
	for _, doc := range docs {
		files = append(files, entry{path.Join(name, doc.name), doc.mode, doc.data})
	}
	tarball, err := tarGzip(files, r.time)
	if err != nil {
		return err
	}
	bill, err := billOfMaterials(bin, r.version, r.time, sha256.Sum256(binary))
	if err != nil {
		return err
	}
	made := []entry{{name: name + ".tar.gz", data: tarball}, {name: name + ".cdx.json", data: bill}}
	if p.os == "linux" {
		deb, err := debianPackage(debianVersion(r.version), p.arch, r.time, binary, docs)
		if err != nil {
			return err
		}
		made = append(made, entry{name: "packhorse_" + debianVersion(r.version) + "_" + p.arch + ".deb", data: deb})
	}
	for _, file := range made {
		if err := os.WriteFile(filepath.Join(r.out, file.name), file.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checksums writes SHA256SUMS, which sha256sum -c reads.
func (r release) checksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), file.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644)
}
