package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"packhorse/odb/space"
)

// byteSize is a flag's number of bytes, written as in "512MiB" or "4294967296".
type byteSize int64

const (
	kib byteSize = 1 << 10
	mib byteSize = 1 << 20
	gib byteSize = 1 << 30
)

// sizeUnits are tried from the largest, so that a size is printed with the unit that divides it.
var sizeUnits = []struct {
	name string
	size byteSize
}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}}

// UnmarshalText reads a size. Units are powers of 1,024.
func (s *byteSize) UnmarshalText(text []byte) error {
	n, err := space.ParseSize(string(text))
	if err == nil {
		*s = byteSize(n)
	}
	return err
}

func (s byteSize) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// memoryDefault is the --memory of a machine that sets no limit.
const memoryDefault = gib

// defaultMemory returns 1 GiB, or half of the limit of the process's control group when that is
// less, in whole MiB.
func defaultMemory() byteSize {
	limit, ok := controlGroupMemory(os.ReadFile)
	if !ok || limit/2 >= memoryDefault {
		return memoryDefault
	}
	return max(limit/2/mib, 1) * mib
}

// controlGroupMemory returns the smallest memory limit of the process's control group and its
// parents, and whether there is one.
func controlGroupMemory(readFile func(string) ([]byte, error)) (byteSize, bool) {
	membership, err := readFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	least, found := byteSize(math.MaxInt64), false
	consider := func(path string) {
		text, err := readFile(path)
		if err != nil {
			return
		}
		// "max", and the huge number of the first version, are no limits.
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < math.MaxInt64/2 {
			least, found = min(least, byteSize(n)), true
		}
	}
	for line := range strings.Lines(string(membership)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			for group := fields[2]; ; group = filepath.Dir(group) {
				consider(filepath.Join("/sys/fs/cgroup", group, "memory.max"))
				if group == "/" || group == "." {
					break
				}
			}
		case fields[1] == "memory":
			consider(filepath.Join("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
			consider("/sys/fs/cgroup/memory/memory.limit_in_bytes")
		}
	}
	return least, found
}
