package odb_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// TestTranscripts plays the stories in testdata/transcripts, on stores in memory with one pool that
// is called main.
//
//	write C [parent=P]      quarantines commit C, its tree and its files, which are lines:
//	                        "path: text", or "path = N bytes" of noise
//	commit, discard         makes the quarantined objects visible; discards them
//	push C [parent=P] [thin] [without=OBJECT]   the same as a pack from a client
//	fork NAME tips=(C, ...) makes a pool that shares the layers of this one
//	delete POOL             deletes a pool
//	compact [all]           flushes hot layers to a segment and merges segments; all: into one
//	plan tips=(C, ...) [old=(C, ...)] [share=N]
//	                        begins to prune objects that no ref, now or before, reaches
//	prune [moved=C]         commits that; a ref was moved to the commit moved meanwhile
//	sweep [grace=1h]        removes layers that left their last manifest and have no pin
//	clock 1h                moves the clock
//	view V, close V         pins the layers as they are, and lets go of them
//	layers                  shows the manifest: layers in the order in which they joined
//	files                   shows what kinds of files there are
//	read OBJECT... [at=V]   C is a commit, C: its tree, C:path a file
//	log C [at=V]            walks the history
//	fsck [tips=(C, ...)]    verifies the pool
//	flip LAYER              changes a bit in the middle of a segment's file, and reopens the stores
//	limits hot-count=N      reopens the stores, so that writes of more objects than N become segments
//	reopen, crash           restart the stores; a crash loses everything that was not synced
//
// Each takes in=POOL. Layers are shown as hot1, seg1 and so on, in the order in which they were
// seen.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := newScene(t)
		datadriven.RunTest(t, path, s.run)
	})
}

// scene is a world with several pools, whose objects and layers have names.
type scene struct {
	*world
	now    time.Time
	pools  []string // in the order of their creation
	ids    map[string]odb.PoolID
	forks  map[string]bool
	grown  odb.Growth // by the last write
	draft  *odbtest.Draft
	plan   *repack.Prune
	views  map[string]*odb.View
	objs   map[string]object.ID // C, C:, C:path
	names  map[string]string    // hexadecimal ID of an object or layer to its name
	counts map[string]int       // layers named, by kind
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		now: time.Unix(1_700_000_000, 0),
		ids: map[string]odb.PoolID{}, forks: map[string]bool{}, views: map[string]*odb.View{},
		objs: map[string]object.ID{}, names: map[string]string{}, counts: map[string]int{},
	}
	s.world = newWorld(t, odb.Options{
		Now:  func() time.Time { return s.now },
		Grew: func(_ odb.PoolID, by odb.Growth) { s.grown = by },
	})
	s.addPool("main", s.Pool)
	s.nameLayers()
	t.Cleanup(func() {
		for _, v := range s.views {
			v.Close()
		}
		s.forget()
	})
	return s
}

// The methods up to run are those that call the store, beside reading and committing, which
// odbtest does.

// ingest takes a pack as a push does.
func (s *scene) ingest(packed []byte) (ingest.Stats, error) {
	v := s.View()
	defer v.Close()
	in, err := ingest.Read(s.Context(), v, bytes.NewReader(packed), ingest.Options{})
	if err != nil {
		return ingest.Stats{}, err
	}
	defer in.Close()
	q, stats, err := in.Resolve(s.Context(), nil)
	if err != nil {
		return stats, err
	}
	d := &odbtest.Draft{World: s.World, Quarantine: q}
	d.Commit()
	return stats, nil
}

func (s *scene) compact(all bool) (repack.Compacted, error) {
	return repack.Compact(s.Context(), s.Store, s.Pool, repack.CompactOptions{All: all})
}

func (s *scene) planPrune(tips, old []object.ID, shareMin float64) (err error) {
	s.plan, err = repack.PlanPrune(s.Context(), s.Store, s.Pool, repack.PruneOptions{
		ShareMin: shareMin, Roots: func(context.Context) (_, _ []object.ID, err error) { return tips, old, nil },
	})
	return err
}

func (s *scene) finishPrune(moved []object.ID) error {
	d := s.plan
	s.plan = nil
	b := kv.NewBatch()
	err := d.Look(s.Context())
	if err == nil {
		err = d.Stage(s.Context(), b, moved)
	}
	if err != nil {
		return errors.Join(err, d.Close())
	}
	s.Apply(b)
	d.Settled(s.Context())
	return d.Close()
}

func (s *scene) deletePool() {
	b := kv.NewBatch()
	s.Store.DropPool(b, s.Pool)
	s.Apply(b)
}

func (s *scene) check(tips []object.ID) (*odb.FsckReport, error) {
	return s.Store.Fsck(s.Context(), s.Pool, odb.FsckOptions{Tips: tips})
}

func (s *scene) sweep(grace time.Duration) (odb.Swept, error) {
	return s.Store.Sweep(s.Context(), grace)
}

func (s *scene) walk(v *odb.View, tip object.ID) (commits []object.ID, err error) {
	for c, err := range revwalk.Walk(s.Context(), v, revwalk.WalkOptions{Tips: []object.ID{tip}}) {
		if err != nil {
			return commits, err
		}
		commits = append(commits, c.ID)
	}
	return commits, nil
}

// settle waits for the background: files move to their place, and visibility sets are stored once
// somebody has asked.
func (s *scene) settle(asked bool) {
	s.Store.AwaitSettled()
	if asked {
		s.Store.AwaitVisibility()
	}
}

func (s *scene) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	pool := cmp.Or(argument(d, "in"), "main")
	s.Pool = s.ids[pool]
	out, err := s.command(t, d, pool)
	s.settle(s.forks[pool] && d.Cmd != "fork" && d.Cmd != "layers")
	s.nameLayers()
	if err != nil {
		out += fmt.Sprintf("refused: %v\n", err)
	}
	return s.named(out)
}

func (s *scene) command(t *testing.T, d *datadriven.TestData, pool string) (string, error) {
	t.Helper()
	switch d.Cmd {
	case "write":
		if s.draft == nil {
			s.draft = s.Draft()
		}
		return s.write(d), nil
	case "commit":
		s.grown = odb.Growth{}
		s.draft.Commit()
		s.draft = nil
		return s.growth(), nil
	case "discard":
		s.forget()
	case "push":
		return s.push(t, d)
	case "fork":
		name := d.CmdArgs[0].Key
		s.addPool(name, s.forkOf(s.tips(d, "tips")...))
		s.forks[name] = true
	case "delete":
		s.Pool = s.ids[d.CmdArgs[0].Key]
		s.deletePool()
		delete(s.ids, d.CmdArgs[0].Key)
	case "compact":
		done, err := s.compact(d.HasArg("all"))
		if err != nil || done.LayerCount == 0 {
			return "nothing to do\n", err
		}
		return fmt.Sprintf("%d layers with %d objects became one segment\n", done.LayerCount, done.ObjectCount), nil
	case "plan":
		share := 0.0
		d.MaybeScanArgs(t, "share", &share)
		err := s.planPrune(s.tips(d, "tips"), s.tips(d, "old"), share)
		if err != nil || s.plan == nil {
			return "nothing to do\n", err
		}
		return fmt.Sprintf("%d objects can go, %d layers are rewritten\n",
			s.plan.ObjectCount(), s.plan.LayerCount()), nil
	case "prune":
		return "", s.finishPrune(s.tips(d, "moved"))
	case "sweep":
		swept, err := s.sweep(duration(t, argument(d, "grace")))
		return fmt.Sprintf("removed %d pools, %d layers, %d files; %d wait\n",
			swept.PoolCount, swept.LayerCount, swept.FileCount, swept.WaitingCount), err
	case "clock":
		s.now = s.now.Add(duration(t, d.CmdArgs[0].Key))
	case "view":
		s.views[d.CmdArgs[0].Key] = s.View()
	case "close":
		name := d.CmdArgs[0].Key
		s.Must(s.views[name].Close())
		delete(s.views, name)
	case "layers":
		return s.layers(pool), nil
	case "files":
		return s.fileKinds(t), nil
	case "read", "log":
		return s.look(d), nil
	case "fsck":
		return s.fsck(d)
	case "flip":
		s.flip(t, d.CmdArgs[0].Key)
	case "limits":
		d.ScanArgs(t, "hot-count", &s.Options.Limits.HotCount)
		s.Reopen()
	case "reopen":
		s.Reopen()
	case "crash":
		after := s.FS.CrashClone(vfs.CrashCloneCfg{})
		s.forget()
		s.Shut()
		s.FS = after
		s.Open()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return "", nil
}

// forget discards the draft and the planned prune.
func (s *scene) forget() {
	if s.draft != nil {
		s.draft.Discard()
		s.draft = nil
	}
	if s.plan != nil {
		s.Must(s.plan.Close())
		s.plan = nil
	}
}

func (s *scene) addPool(name string, id odb.PoolID) {
	s.pools = append(s.pools, name)
	s.ids[name] = id
	s.names[hex.EncodeToString(id[:])] = name
}

// made is an object of a commit.
type made struct {
	name    string
	kind    object.Type
	data    []byte
	follows object.ID // the file at the same path of the parent, or its tree
}

// compose makes the objects of a commit, and remembers their names.
func (s *scene) compose(d *datadriven.TestData) []made {
	name, parent := d.CmdArgs[0].Key, argument(d, "parent")
	var objects []made
	add := func(suffix string, kind object.Type, data []byte) object.ID {
		id, err := object.Hash(kind, data)
		s.Must(err)
		s.objs[name+suffix] = id
		if s.names[id.String()] == "" {
			s.names[id.String()] = name + suffix
		}
		objects = append(objects, made{name + suffix, kind, data, s.objs[parent+suffix]})
		return id
	}
	var entries []object.TreeEntry
	for line := range strings.Lines(d.Input) {
		filePath, content, isText := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		data := []byte(content + "\n")
		if !isText {
			var size int
			_, err := fmt.Sscanf(line, "%s = %d bytes", &filePath, &size)
			s.Must(err)
			data = odbtest.Noise(rand.New(rand.NewPCG(uint64(len(name)), uint64(name[len(name)-1]))), size)
		}
		entries = append(entries, odbtest.FileEntry(filePath, add(":"+filePath, object.TypeBlob, data)))
	}
	object.SortTree(entries)
	tree := add(":", object.TypeTree, odbtest.TreeOf(entries...))
	var parents []object.ID
	if parent != "" {
		parents = append(parents, s.objs[parent])
	}
	add("", object.TypeCommit, odbtest.CommitOf(tree, 1_700_000_000+len(s.objs), parents...))
	return objects
}

func (s *scene) write(d *datadriven.TestData) string {
	for _, o := range s.compose(d) {
		if len(o.data) > 64<<10 {
			s.draft.WriteFrom(o.data)
		} else {
			s.draft.Write(o.kind, o.data, o.follows)
		}
	}
	return ""
}

// push sends a commit with the objects that its parent does not reach.
func (s *scene) push(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	known := map[object.ID]bool{}
	if parent := argument(d, "parent"); parent != "" {
		for name, id := range s.objs {
			known[id] = known[id] || name == parent || strings.HasPrefix(name, parent+":")
		}
	}
	objects := slices.DeleteFunc(s.compose(d), func(o made) bool {
		return known[s.objs[o.name]] || o.name == argument(d, "without")
	})
	var packed bytes.Buffer
	w := packtest.NewWriter(&packed, uint32(len(objects)), 0)
	for _, o := range objects {
		var err error
		if thin := d.HasArg("thin") && known[o.follows] && o.kind == object.TypeBlob; thin {
			_, base, readErr := s.readAt("", o.follows)
			s.Must(readErr)
			program, _ := delta.NewIndex(base).Create(nil, o.data, 1<<20)
			_, err = w.WriteRefDelta(o.follows, program)
		} else {
			_, err = w.WriteWhole(o.kind, o.data)
		}
		s.Must(err)
	}
	_, err := w.Close()
	s.Must(err)
	s.grown = odb.Growth{}
	stats, err := s.ingest(packed.Bytes())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a pack of %d objects, %d deltas, completed by %d\n",
		stats.ObjectCount, stats.DeltaCount, stats.BaseCount) + s.growth(), nil
}

// growth says how much the last write added.
func (s *scene) growth() string {
	var out string
	if s.grown.ObjectCount > 0 {
		out = fmt.Sprintf("%d hot objects\n", s.grown.ObjectCount)
	}
	if s.grown.SegmentCount > 0 {
		out += fmt.Sprintf("%d segment\n", s.grown.SegmentCount)
	}
	return out
}

// tips returns the objects that an argument names.
func (s *scene) tips(d *datadriven.TestData, key string) (ids []object.ID) {
	if arg, ok := d.Arg(key); ok {
		for _, name := range arg.Vals {
			ids = append(ids, s.id(name))
		}
	}
	return ids
}

// id returns the object of a name, or one that is nowhere.
func (s *scene) id(name string) object.ID {
	id, made := s.objs[name]
	if !made {
		var err error
		id, err = object.Hash(object.TypeBlob, []byte("nowhere: "+name))
		s.Must(err)
		s.names[id.String()] = name
	}
	return id
}

// readAt reads an object, from a view that was kept or as the pool is now.
func (s *scene) readAt(view string, id object.ID) (object.Type, []byte, error) {
	v := s.views[view]
	if v == nil {
		v = s.View()
		defer v.Close()
	}
	return v.Read(s.Context(), id)
}

// look reads objects, or walks from one.
func (s *scene) look(d *datadriven.TestData) string {
	var out strings.Builder
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) > 0 {
			continue
		}
		if d.Cmd == "log" {
			s.log(&out, argument(d, "at"), s.id(arg.Key))
			continue
		}
		kind, data, err := s.readAt(argument(d, "at"), s.id(arg.Key))
		switch {
		case errors.Is(err, odb.ErrNotFound):
			fmt.Fprintf(&out, "%s is not there\n", arg.Key)
		case err != nil:
			fmt.Fprintf(&out, "%s: %v\n", arg.Key, err)
		case kind == object.TypeBlob && len(data) < 100:
			fmt.Fprintf(&out, "%s is a blob: %s", arg.Key, data)
		default:
			fmt.Fprintf(&out, "%s is a %s of %d bytes\n", arg.Key, kind, len(data))
		}
	}
	return out.String()
}

func (s *scene) log(out *strings.Builder, view string, tip object.ID) {
	v := s.views[view]
	if v == nil {
		v = s.View()
		defer v.Close()
	}
	commits, err := s.walk(v, tip)
	for _, id := range commits {
		fmt.Fprintf(out, "%s\n", id)
	}
	if err != nil {
		fmt.Fprintf(out, "%v\n", err)
	}
}

func (s *scene) fsck(d *datadriven.TestData) (string, error) {
	report, err := s.check(s.tips(d, "tips"))
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("%d layers, %d objects, %d problems\n",
		report.LayerCount, report.ObjectCount, report.ProblemCount)
	for _, problem := range report.Problems {
		out += fmt.Sprintf("%v\n", problem)
	}
	return out, nil
}

// flip changes a bit of the file of a segment.
func (s *scene) flip(t *testing.T, layer string) {
	t.Helper()
	for _, name := range listFiles(t, s.world) {
		id, isSegment := strings.CutSuffix(path.Base(name), ".segment")
		if isSegment && s.names[id] == layer {
			info, err := s.FS.Stat(name)
			s.Must(err)
			flipAt(t, s.world, name, info.Size()/2, 1)
		}
	}
	s.Reopen() // so that nothing is in the cache
}

// storedLayer is a layer as docs/formats.md tells of manifests.
type storedLayer struct {
	kind        segment.LayerKind
	id          string // hexadecimal
	auxiliaries []segment.LayerKind
}

// manifest reads the manifest of a pool from the key-value store; found is false for a pool that
// was removed.
func (s *scene) manifest(pool odb.PoolID) (version, prunes uint64, layers []storedLayer, found bool) {
	data, err := s.Keys.Get(s.Context(), append([]byte{'m'}, pool[:]...))
	if errors.Is(err, kv.ErrNotFound) {
		return 0, 0, nil, false
	}
	s.Must(err)
	r := bytes.NewReader(data[1:])
	number := func() uint64 {
		n, err := binary.ReadUvarint(r)
		s.Must(err)
		return n
	}
	layer := func() (l storedLayer) {
		var id [17]byte
		_, err := r.Read(id[:])
		s.Must(err)
		return storedLayer{kind: segment.LayerKind(id[0]), id: hex.EncodeToString(id[1:])}
	}
	version, prunes = number(), number()
	for range number() {
		l := layer()
		for range number() {
			l.auxiliaries = append(l.auxiliaries, layer().kind)
		}
		layers = append(layers, l)
	}
	return version, prunes, layers, true
}

// layers shows a pool's manifest.
func (s *scene) layers(pool string) string {
	version, prunes, layers, found := s.manifest(s.ids[pool])
	if !found {
		return "no such pool\n"
	}
	out := fmt.Sprintf("manifest %d", version)
	if prunes > 0 {
		out += fmt.Sprintf(", pruned %d times", prunes)
	}
	out += "\n"
	for i, l := range layers {
		out += fmt.Sprintf("%s: %d objects", s.names[l.id], s.objectCount(l))
		if l.kind == segment.KindHot {
			out += map[bool]string{true: ", takes writes", false: ", frozen"}[i == len(layers)-1]
		}
		for _, kind := range l.auxiliaries {
			out += ", " + map[segment.LayerKind]string{
				segment.KindGraph: "graph", segment.KindFilter: "filter", segment.KindHistory: "history", segment.KindTrigram: "trigram",
				segment.KindBitmap: "bitmap", segment.KindVisibility: "borrowed",
			}[kind]
		}
		for _, other := range s.pools {
			if other != pool && s.uses(other, l.id) {
				out += ", also in " + other
			}
		}
		out += "\n"
	}
	return out
}

func (s *scene) uses(pool, layer string) bool {
	id, there := s.ids[pool]
	if !there {
		return false
	}
	_, _, layers, _ := s.manifest(id)
	return slices.ContainsFunc(layers, func(l storedLayer) bool { return l.id == layer })
}

// objectCount counts the rows of a hot layer; a segment begins with a pack, which begins with the
// number of its objects.
func (s *scene) objectCount(l storedLayer) int {
	raw, err := hex.DecodeString(l.id)
	s.Must(err)
	if l.kind == segment.KindHot {
		start := append([]byte{'o'}, raw...)
		count := 0
		for _, err := range s.Keys.Scan(s.Context(), kv.ScanOptions{Start: start, End: kv.PrefixEnd(start)}) {
			s.Must(err)
			count++
		}
		return count
	}
	f, err := s.Files.Open(s.Context(), segment.KindSegment.FileName(segment.LayerID(raw)))
	s.Must(err)
	var header [12]byte
	_, err = f.ReadAt(s.Context(), header[:], 0)
	s.Must(errors.Join(err, f.Close()))
	return int(binary.BigEndian.Uint32(header[8:]))
}

// nameLayers gives names to layers that have none.
func (s *scene) nameLayers() {
	for _, pool := range s.pools {
		id, there := s.ids[pool]
		if !there {
			continue
		}
		_, _, layers, _ := s.manifest(id)
		for _, l := range layers {
			if s.names[l.id] == "" {
				kind := map[bool]string{true: "hot", false: "seg"}[l.kind == segment.KindHot]
				s.counts[kind]++
				s.names[l.id] = kind + strconv.Itoa(s.counts[kind])
			}
		}
	}
}

// fileKinds counts the files by their extensions.
func (s *scene) fileKinds(t *testing.T) string {
	t.Helper()
	kinds := map[string]int{}
	for info, err := range s.Files.List(t.Context()) {
		s.Must(err)
		kinds[strings.TrimPrefix(path.Ext(info.Name), ".")]++
	}
	if len(kinds) == 0 {
		return "none\n"
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return strings.Join(out, ", ") + "\n"
}

var hexIDs = regexp.MustCompile(`[0-9a-f]{40}|[0-9a-f]{32}`)

// named replaces the IDs of objects and layers in a text by their names.
func (s *scene) named(text string) string {
	return hexIDs.ReplaceAllStringFunc(text, func(id string) string { return cmp.Or(s.names[id], "?") })
}

// argument returns the value of an argument, "" for none.
func argument(d *datadriven.TestData, key string) string {
	arg, ok := d.Arg(key)
	if !ok || len(arg.Vals) == 0 {
		return ""
	}
	return arg.Vals[0]
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return length
}
