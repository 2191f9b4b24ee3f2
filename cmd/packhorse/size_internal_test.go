package main

import (
	"fmt"
	"io/fs"
	"testing"
)

func TestByteSize(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text, want string // want "" means an error
	}{
		"bytes":         {"1000", "1000"},
		"whole unit":    {"512MiB", "512MiB"},
		"larger unit":   {"2048MiB", "2GiB"},
		"space":         {"3 KiB", "3KiB"},
		"zero":          {"0", "0"},
		"largest":       {"9223372036854775807", "9223372036854775807"},
		"nothing":       {"", ""},
		"no number":     {"MiB", ""},
		"negative":      {"-1", ""},
		"decimal unit":  {"1GB", ""},
		"too large":     {"9223372036854775807KiB", ""},
		"no whole size": {"1.5GiB", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var size byteSize
			err := size.UnmarshalText([]byte(test.text))
			if got := size.String(); test.want != "" && (err != nil || got != test.want) || test.want == "" && err == nil {
				t.Errorf("%q is %s, %v; want %q", test.text, got, err, test.want)
			}
		})
	}
}

func TestControlGroupMemory(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		want  byteSize // 0 means no limit
	}{
		"no control groups": {},
		"second version": {files: map[string]string{
			"/proc/self/cgroup":                 "0::/app/web\n",
			"/sys/fs/cgroup/app/web/memory.max": "536870912\n",
		}, want: 512 * mib},
		"of the group above": {files: map[string]string{
			"/proc/self/cgroup":                 "0::/app/web\n",
			"/sys/fs/cgroup/app/web/memory.max": "max\n",
			"/sys/fs/cgroup/app/memory.max":     "1073741824\n",
			"/sys/fs/cgroup/memory.max":         "2147483648\n",
		}, want: gib},
		"none set": {files: map[string]string{
			"/proc/self/cgroup":         "0::/\n",
			"/sys/fs/cgroup/memory.max": "max\n",
		}},
		"first version": {files: map[string]string{
			"/proc/self/cgroup": "7:cpu,cpuacct:/box\n5:memory:/box\n",
			"/sys/fs/cgroup/memory/box/memory.limit_in_bytes": "268435456\n",
		}, want: 256 * mib},
		"first version, none set": {files: map[string]string{
			"/proc/self/cgroup":                           "5:memory:/\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := controlGroupMemory(func(path string) ([]byte, error) {
				if text, ok := test.files[path]; ok {
					return []byte(text), nil
				}
				return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
			})
			if ok != (test.want != 0) || ok && got != test.want {
				t.Errorf("limit %s, %v; want %s", got, ok, test.want)
			}
		})
	}
}
