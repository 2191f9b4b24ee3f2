package bench_test

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// BenchmarkMetadata lists the whole tree with the last commit of every file, or the entries of a
// folder: "cold" knows nothing of an earlier listing, "warm" has one of the same commit, "list" is
// the tree alone.
func BenchmarkMetadata(b *testing.B) {
	h := openHistory(b)
	for _, run := range []struct {
		name    string
		bytes   int64
		request engine.MetadataRequest
	}{
		{"cold", 1, engine.MetadataRequest{}},
		{"warm", 64 << 20, engine.MetadataRequest{}},
		{"cold/root", 1, engine.MetadataRequest{Flat: true}},
		{"cold/folder", 1, engine.MetadataRequest{Flat: true, Path: path.Dir("/" + h.busiest)[1:]}},
	} {
		b.Run(run.name, func(b *testing.B) {
			repo := h.push(b, openHostIn(b, b.TempDir(), engine.Config{HistoryBytes: run.bytes}), "r")
			listMetadata(b, repo, run.request)
			files, commits := 0, 0
			for b.Loop() {
				files, commits = listMetadata(b, repo, run.request)
			}
			b.ReportMetric(float64(files), "files")
			b.ReportMetric(float64(commits), "commits")
		})
	}
	b.Run("list", func(b *testing.B) {
		repo := h.push(b, openHost(b, false), "r")
		files := 0
		for b.Loop() {
			files = len(allFiles(b, repo))
		}
		b.ReportMetric(float64(files), "files")
	})
}

// BenchmarkMetadataFolders lists the entries of a folder with their last commits, each for the
// first time since the server started: of the root, the folder of the busiest file, and the one
// with the most entries. "browsed" lists the three one after the other, as somebody does who opens
// them. Maintenance has seen the repository.
func BenchmarkMetadataFolders(b *testing.B) {
	h, dir := openHistory(b), b.TempDir()
	func() {
		stores := openStores(b, dir)
		defer stores.close(b)
		host, err := engine.Open(b.Context(), engine.Config{KV: stores.keys, Files: stores.files})
		if err != nil {
			b.Fatal(err)
		}
		defer closeStore(b, func() error { return host.Close(context.Background()) })
		h.push(b, host, "r")
		maintain(b, host, engine.MaintainOptions{ReaderGrace: -1})
	}()
	type folder struct{ name, path string }
	folders := []folder{{"root", ""}, {"busiest", path.Dir("/" + h.busiest)[1:]}, {"widest", h.widest}}
	for _, run := range []struct {
		name string
		list []folder
	}{{"root", folders[:1]}, {"busiest", folders[1:2]}, {"widest", folders[2:]}, {"browsed", folders}} {
		b.Run(run.name, func(b *testing.B) {
			list := run.list
			took := make([]time.Duration, len(list))
			for b.Loop() {
				b.StopTimer()
				stores := openStores(b, dir)
				host, err := engine.Open(b.Context(), engine.Config{KV: stores.keys, Files: stores.files})
				if err != nil {
					b.Fatal(err)
				}
				repo, err := host.Repository(b.Context(), enginetest.Org, "r")
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for i, f := range list {
					start := time.Now()
					listMetadata(b, repo, engine.MetadataRequest{Path: f.path, Flat: true})
					took[i] += time.Since(start)
				}
				b.StopTimer()
				closeStore(b, func() error { return host.Close(context.Background()) })
				stores.close(b)
				b.StartTimer()
			}
			if len(list) > 1 {
				for i, f := range list {
					b.ReportMetric(float64(took[i].Microseconds())/1000/float64(b.N), f.name+"-ms")
				}
			}
		})
	}
}

// widest returns the folder with the most entries among those of a list of files, a line each.
func widest(files string) (folder string) {
	entries := make(map[string]map[string]bool)
	for file := range strings.SplitSeq(files, "\n") {
		for at := "/" + file; at != "/"; at = path.Dir(at) {
			above := path.Dir(at)[1:]
			if entries[above] == nil {
				entries[above] = make(map[string]bool)
			}
			entries[above][path.Base(at)] = true
		}
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(entries)), func(x, y string) int {
		return cmp.Compare(len(entries[x]), len(entries[y]))
	})
}

func listMetadata(b *testing.B, repo *engine.Repository, request engine.MetadataRequest) (files, commits int) {
	b.Helper()
	ctx := context.Background()
	list, err := repo.Metadata(ctx, request)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, list.Close)
	for range list.Files() {
		files++
	}
	for _, err := range list.Commits(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		commits++
	}
	return files, commits
}
