package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

func TestFsck(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it damages a file in its folder")
	ctx := context.Background()
	fs := vfs.NewMem()
	// Everything large becomes a segment, whose file the test can damage.
	config := engine.Config{Objects: odb.Options{Limits: odb.Limits{HotBytes: 64 << 10}}}
	host, shut := enginetest.OpenOn(t, fs, config)
	actor := engine.Actor{Org: enginetest.Org, Subject: "test"}
	for i := range 3 {
		repo := enginetest.Create(t, host, fmt.Sprintf("repo%d", i))
		large := make([]byte, (256-i)<<10) // the largest file is of a repository that stays
		random := rand.New(rand.NewPCG(uint64(i), 0))
		for j := range large {
			large[j] = byte(random.Uint32())
		}
		if _, err := upload(repo, actor, engine.CommitTarget{Branch: "main"},
			change{path: "small", content: "small"}, change{path: "large", content: string(large)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := host.DeleteRepository(ctx, actor, "repo2"); err != nil {
		t.Fatal(err)
	}

	check := func(host *engine.Host) (names, damaged []string) {
		t.Helper()
		for checked, err := range host.Fsck(ctx, engine.FsckOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if checked.Org != enginetest.Org || checked.Repository == (refs.RepoID{}) {
				t.Errorf("checked %+v", checked)
			}
			if checked.Objects.ObjectCount < 4 { // a commit, a tree, two blobs
				t.Errorf("%s: %d objects were looked at", checked.Name, checked.Objects.ObjectCount)
			}
			names = append(names, checked.Name)
			if checked.Damaged() {
				damaged = append(damaged, checked.Name)
			}
		}
		return names, damaged
	}
	if names, damaged := check(host); !slices.Equal(names, []string{"repo0", "repo1"}) || damaged != nil {
		t.Errorf("checked %q, damaged %q; want repo0 and repo1, in order", names, damaged)
	}
	shut()

	flipBit(t, fs, largestFile(t, fs, "files"))
	host, shut = enginetest.OpenOn(t, fs, config)
	defer shut()
	if names, damaged := check(host); len(names) != 2 || len(damaged) != 1 {
		t.Errorf("checked %q, damaged %q; want one of two damaged", names, damaged)
	}
}

// largestFile returns the path of the largest file below dir.
func largestFile(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	largest, size := "", int64(-1)
	var visit func(dir string)
	visit = func(dir string) {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := fs.Stat(path.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				visit(path.Join(dir, name))
			} else if info.Size() > size {
				largest, size = path.Join(dir, name), info.Size()
			}
		}
	}
	visit(dir)
	return largest
}

// flipBit changes one bit in the first half of a file.
func flipBit(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, info.Size()/3); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x10
	if _, err := f.WriteAt(one, info.Size()/3); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
