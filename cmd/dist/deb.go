package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// debianVersion is a version as Debian orders them: it begins with a digit, and what precedes a
// release follows a "~".
func debianVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if version == "" || version[0] < '0' || version[0] > '9' || !strings.Contains(version, ".") {
		return "0~" + strings.ReplaceAll(version, "-", ".")
	}
	release, rest, _ := strings.Cut(version, "-")
	if rest == "" {
		return release
	}
	mark := "~" // v1.2.0-rc.1
	if rest[0] >= '0' && rest[0] <= '9' {
		mark = "+" // v1.2.0-5-g0123456, five commits behind it
	}
	return release + mark + strings.ReplaceAll(rest, "-", ".")
}

// The control file and the scripts of a package: see deb-control(5) and deb-postinst(5). DPKG_ROOT
// is set when a script runs outside of the system that the package is installed in, as for an
// image: then it leaves this machine alone.
const (
	debControl = `Package: packhorse
Version: %s
Architecture: %s
Maintainer: Packhorse authors <packhorse@localhost>
Installed-Size: %d
Recommends: ca-certificates
Section: vcs
Priority: optional
Description: git host with an API
 Packhorse hosts git repositories: git clients clone, fetch and push over
 HTTP, programs use a JSON API. It is one binary with its own storage.
`
	debPostinst = `#!/bin/sh
set -e
if [ "$1" = configure ]; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} packhorse.conf
	elif [ -n "$DPKG_ROOT" ] && grep -qs '^packhorse:' "$DPKG_ROOT/etc/passwd"; then
		: # an upgrade
	elif [ -n "$DPKG_ROOT" ] || ! getent passwd packhorse >/dev/null; then
		useradd ${DPKG_ROOT:+--prefix "$DPKG_ROOT"} --system --home-dir /var/lib/packhorse --shell /usr/sbin/nologin packhorse
	fi
	if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
`
	debPrerm = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then systemctl stop packhorse.service; fi
`
	debUser = "u packhorse - \"Packhorse git host\" /var/lib/packhorse\n"
)

// debPlaces says where the files of a tarball go in a package. The manual goes
// elsewhere.
var debPlaces = map[string]string{
	"README.md":                  "usr/share/doc/packhorse/README.md",
	"LICENSE":                    "usr/share/doc/packhorse/copyright",
	"packhorse.service":          "usr/lib/systemd/system/packhorse.service",
	"config.yaml":                "etc/packhorse/config.yaml",
	"completions/packhorse.bash": "usr/share/bash-completion/completions/packhorse",
	"completions/_packhorse":     "usr/share/zsh/vendor-completions/_packhorse",
	"completions/packhorse.fish": "usr/share/fish/vendor_completions.d/packhorse.fish",
}

// debianPackage returns a package of a binary and the documents of a release.
func debianPackage(version, arch string, at time.Time, binary []byte, docs []entry) ([]byte, error) {
	files := []entry{
		{"usr/bin/packhorse", 0o755, binary}, {"usr/lib/sysusers.d/packhorse.conf", 0o644, []byte(debUser)},
	}
	for _, doc := range docs {
		page, isPage := strings.CutPrefix(doc.name, "man/")
		switch {
		case isPage:
			packed, err := gzipped(doc.data)
			if err != nil {
				return nil, err
			}
			files = append(files, entry{"usr/share/man/man1/" + page + ".gz", doc.mode, packed})
		case debPlaces[doc.name] != "":
			files = append(files, entry{debPlaces[doc.name], doc.mode, doc.data})
		default:
			return nil, fmt.Errorf("a package has no place for %s", doc.name)
		}
	}
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var sums bytes.Buffer
	size := 0
	for i := range files {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(files[i].data), files[i].name)
		size += len(files[i].data)
	}
	data, err := tarGzip(files, at)
	if err != nil {
		return nil, err
	}
	control, err := tarGzip([]entry{
		{"control", 0o644, fmt.Appendf(nil, debControl, version, arch, (size+1023)/1024)},
		{"conffiles", 0o644, []byte("/etc/packhorse/config.yaml\n")},
		{"md5sums", 0o644, sums.Bytes()},
		{"postinst", 0o755, []byte(debPostinst)},
		{"prerm", 0o755, []byte(debPrerm)},
	}, at)
	if err != nil {
		return nil, err
	}
	return arArchive([]entry{
		{name: "debian-binary", data: []byte("2.0\n")},
		{name: "control.tar.gz", data: control},
		{name: "data.tar.gz", data: data},
	}, at), nil
}

// gzipped compresses without a name and a time.
func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// arArchive returns an archive of ar(5), with names of 16 bytes at most:
//
//	"!<arch>\n", then for each file
//	name 16 B | time 12 B | user 6 B | group 6 B | mode 8 B | size 10 B | "`\n" | content, padded to 2 B
func arArchive(files []entry, at time.Time) []byte {
	out := []byte("!<arch>\n")
	for _, file := range files {
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n",
			path.Base(file.name), at.Unix(), 0, 0, "100644", len(file.data))
		out = append(out, file.data...)
		if len(file.data)%2 == 1 {
			out = append(out, '\n')
		}
	}
	return out
}
