package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/cluster"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/engine/identity"
	"packhorse/engine/migrate"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// stores are a pair of stores in memory.
type stores struct {
	testing.TB
	fs    *vfs.MemFS
	keys  kv.Store
	files file.Store
	shut  func()
}

func openStores(tb testing.TB, fs *vfs.MemFS) *stores {
	tb.Helper()
	s := &stores{TB: tb, fs: fs}
	s.keys, s.files, s.shut = odbtest.OpenStores(tb, fs)
	return s
}

// newStores opens an empty pair, until the test ends.
func newStores(tb testing.TB) *stores {
	tb.Helper()
	s := openStores(tb, vfs.NewCrashableMem())
	tb.Cleanup(func() { s.shut() })
	return s
}

// crash opens the pair on what a power failure leaves.
func (s *stores) crash() *stores {
	s.Helper()
	after := s.fs.CrashClone(vfs.CrashCloneCfg{})
	s.shut()
	return openStores(s.TB, after)
}

// end returns the pair as an end of a migration.
func (s *stores) end(place string) migrate.Stores {
	return migrate.Stores{Keys: s.keys, Files: s.files, Place: place}
}

func (s *stores) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// host opens a host, and calls use with it.
func (s *stores) host(config engine.Config, use func(host *engine.Host)) {
	s.Helper()
	config.KV, config.Files = s.keys, s.files
	host, err := engine.Open(s.Context(), config)
	s.must(err)
	defer func() { s.must(host.Close(context.WithoutCancel(s.Context()))) }()
	use(host)
}

// sharing is the configuration of a server that shares its stores.
func sharing() engine.Config {
	return engine.Config{Sharing: new(engine.Sharing), Objects: odb.Options{RemoteKeys: true}}
}

// commitFile makes a commit of one file.
func (s *stores) commitFile(host *engine.Host, repo, path string, content []byte) {
	s.Helper()
	ctx := s.Context()
	opened, err := host.Repository(ctx, enginetest.Org, repo)
	s.must(err)
	u, err := opened.NewUpload(ctx, engine.Actor{Org: enginetest.Org, Subject: "tester"}, engine.UploadRequest{
		Target: engine.CommitTarget{Branch: "main"},
		Details: engine.CommitDetails{
			Message: "change", Author: commit.Person{Name: "A U Thor", Email: "thor@example.com"},
		},
		Operations: []engine.FileOperation{{Path: path, ContentID: "1"}},
	})
	s.must(err)
	defer u.Close()
	s.must(u.Chunk(ctx, "1", content, true))
	_, err = u.Finish(ctx)
	s.must(err)
}

// wantFile checks that a file has that content.
func (s *stores) wantFile(host *engine.Host, repo, path string, content []byte) {
	s.Helper()
	ctx := s.Context()
	opened, err := host.Repository(ctx, enginetest.Org, repo)
	s.must(err)
	f, err := opened.File(ctx, engine.FileRequest{Ref: "main", Path: path})
	s.must(err)
	object, err := f.Content(ctx)
	s.must(err)
	var got bytes.Buffer
	_, err = object.WriteTo(&got)
	s.must(errors.Join(err, object.Close(), f.Close()))
	if !bytes.Equal(got.Bytes(), content) {
		s.Errorf("%s of %s has %d bytes that are not the %d that were stored", path, repo, got.Len(), len(content))
	}
}

// wantWhole checks that no repository is damaged.
func (s *stores) wantWhole(host *engine.Host) {
	s.Helper()
	for checked, err := range host.Fsck(s.Context(), engine.FsckOptions{}) {
		s.must(err)
		if checked.Damaged() {
			s.Errorf("damage: %q", checked.Problems())
		}
	}
}

var small = []byte("a hot object\n")

// large is stored in a segment.
func large(seed uint64) []byte { return odbtest.Noise(rand.New(rand.NewPCG(seed, 0)), 200<<10) }

// fill stores repositories of hot objects and of segments, one of them a fork. Maintenance merges
// the segments of another one.
func (s *stores) fill() {
	s.Helper()
	s.host(engine.Config{}, func(host *engine.Host) {
		enginetest.Create(s, host, "a")
		s.commitFile(host, "a", "hot", small)
		s.commitFile(host, "a", "large", large(1))
		_, err := host.CreateRepository(s.Context(), engine.Actor{Org: enginetest.Org},
			engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "a"}})
		s.must(err)
		s.commitFile(host, "fork", "large2", large(2))
		enginetest.Create(s, host, "b")
		s.commitFile(host, "b", "large5", large(5))
		s.commitFile(host, "b", "large6", large(6))
	})
}

// wantFilled checks what fill stored.
func (s *stores) wantFilled(host *engine.Host) {
	s.Helper()
	s.wantFile(host, "a", "hot", small)
	s.wantFile(host, "a", "large", large(1))
	s.wantFile(host, "fork", "hot", small)
	s.wantFile(host, "fork", "large", large(1))
	s.wantFile(host, "fork", "large2", large(2))
	s.wantFile(host, "b", "large5", large(5))
	s.wantFile(host, "b", "large6", large(6))
	s.wantWhole(host)
}

// everything returns all rows and files, by "row KEY" and "file NAME". Those that are not copied
// are left out if copied is set.
func (s *stores) everything(copied bool) map[string]string {
	s.Helper()
	found := make(map[string]string)
	for pair, err := range s.keys.Scan(s.Context(), kv.ScanOptions{}) {
		s.must(err)
		if !copied || pair.Key[0] != identity.Table && pair.Key[0] != cluster.Table {
			found["row "+string(pair.Key)] = string(pair.Value)
		}
	}
	for info, err := range s.files.List(s.Context()) {
		s.must(err)
		pools, err := odb.FilePools(s.Context(), s.keys, info.Name)
		s.must(err)
		if copied && len(pools) == 0 {
			continue
		}
		f, err := s.files.Open(s.Context(), info.Name)
		s.must(err)
		content, err := io.ReadAll(file.NewReader(s.Context(), f))
		s.must(errors.Join(err, f.Close()))
		found["file "+info.Name] = string(content)
	}
	return found
}

// state returns how far a store is, without opening it.
func (s *stores) state() identity.State {
	s.Helper()
	row, err := identity.Read(s.Context(), s.keys)
	if errors.Is(err, kv.ErrNotFound) {
		return "empty"
	}
	s.must(err)
	return row.Mark.State
}

// wantMoved checks that a migration has ended: the stores are equal, and the target alone can be
// opened, under the same ID.
func wantMoved(from, to *stores, report migrate.Report) {
	from.Helper()
	source, target := from.everything(true), to.everything(false)
	for name := range target {
		if name == "row "+string(identity.Key()) {
			delete(target, name)
		}
	}
	for name, value := range source {
		if target[name] != value {
			from.Errorf("%q is another one in the target", name)
		}
		delete(target, name)
	}
	for name := range target {
		from.Errorf("%q is in the target only", name)
	}
	was, err := identity.Read(from.Context(), from.keys)
	from.must(err)
	if id, err := engine.StoreID(from.Context(), to.keys); err != nil || id != was.ID {
		from.Errorf("the target is store %s, %v, and the source %s", id, err, was.ID)
	}
	if _, err := engine.StoreID(from.Context(), from.keys); !errors.Is(err, identity.ErrMoved) {
		from.Errorf("the source opens: %v", err)
	}
	if int(report.RowCount+report.FileCount) != len(source) || report.VerifiedCount != report.RowCount {
		from.Errorf("the report is %+v, of %d rows and files", report, len(source))
	}
}
