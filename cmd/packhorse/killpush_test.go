package main_test

import (
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestKilledPush kills a server when the bucket has the file of a push that is not registered yet.
// Once the other server has missed it, the bucket has what is registered, and nothing else.
func TestKilledPush(t *testing.T) {
	t.Parallel()
	skipShort(t)
	dir, service := t.TempDir(), s3test.Start(t)
	stores := &sharedStores{keys: postgrestest.Database(t)}
	stores.files, stores.env = service.Place(t)
	location, err := s3.ParseLocation(stores.files)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan struct{})
	endpoint := service.Proxy(t, func(service http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, ".segment") {
				service.ServeHTTP(w, r)
				return
			}
			service.ServeHTTP(httptest.NewRecorder(), r)
			close(stored)
			<-r.Context().Done() // the answer never comes
		})
	})
	first, second := stores.options(dir, 0), stores.options(dir, 1)
	for i, flag := range first.Flags {
		if flag == "--files" {
			first.Flags[i+1] = strings.Replace(stores.files, urlEscaped(location.Endpoint), urlEscaped(endpoint), 1)
		}
	}
	killed, other := start(t, first), start(t, second)
	token := create(t, killed, "r")
	remote := func(s *packhorsetest.Server) string {
		return strings.Replace(s.URL, "://", "://t:"+token+"@", 1) + "/r.git"
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 7, Commits: 600})
	pushed := make(chan error, 1)
	go func() {
		_, err := git.Try(nil, "push", "--quiet", "--mirror", remote(killed))
		pushed <- err
	}()
	select {
	case <-stored:
	case err := <-pushed:
		t.Fatalf("the push stores no segment: %v", err)
	}
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-pushed; err == nil {
		t.Fatal("the push has succeeded")
	}
	b := &bucketOf{t: t, keys: stores.keys, location: location, client: service.Client()}
	stray := "01a209118a4a772f826859d86442b834.segment"
	if left := b.unregistered(); len(left) == 0 {
		t.Fatal("the killed server has left nothing")
	} else {
		b.copy(left[0], "elsewhere/"+stray) // an object of others
	}
	git.Git("push", "--quiet", "--mirror", remote(other))

	data := filepath.Join(second.Dir, "data")
	task := func(args ...string) result {
		t.Helper()
		got := packhorse(t, stores.env, append(args, "--data", data)...)
		if got.status != 0 {
			t.Fatalf("%+v", got)
		}
		return got
	}
	for begun := time.Now(); ; {
		task("gc")
		got := packhorse(t, nil, "cluster", "--keys", stores.keys)
		if strings.Contains(got.out, "1 server, 0 notes of files that they store, 0 of files that others have left\n") {
			break
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("not so far: %+v", got)
		}
	}
	if left := b.unregistered(); len(left) != 1 || path.Base(left[0]) != stray {
		t.Errorf("the bucket has %v, which are not registered", left)
	}
	if got := task("fsck"); strings.Contains(got.out, "nothing names") {
		t.Errorf("fsck takes an object of others for a file: %s", got.out)
	}
	_, figures := call(t, http.DefaultClient, "GET", other.URL+"/metrics", "")
	if !strings.Contains(figures, "packhorse_file_intents_collected_total 1\n") {
		t.Error("the metrics do not tell of what was collected")
	}

	// A file such as an older release has left: fsck tells of it, gc removes it when it is told to.
	registered := b.registered()
	old := "01a209118a4a77308fc4a63ff3d30ddd.segment"
	b.copy(registered[0], "8f/"+old)
	if got := task("fsck"); !strings.Contains(got.out, "1 file of ") {
		t.Errorf("fsck does not tell of a file that nothing names: %s", got.out)
	}
	if got := task("gc", "--remove-unregistered"); !strings.Contains(got.out, "removed that nothing named") {
		t.Errorf("gc: %s", got.out)
	}
	if left := b.unregistered(); len(left) != 1 || path.Base(left[0]) != stray {
		t.Errorf("the bucket has %v, which are not registered", left)
	}
	clone := oracle.Open(t, filepath.Join(t.TempDir(), "clone.git"))
	clone.Git("clone", "--quiet", "--mirror", remote(other), clone.Dir)
	clone.Git("fsck", "--full", "--strict")
}

func urlEscaped(endpoint string) string {
	return strings.NewReplacer(":", "%3A", "/", "%2F").Replace(endpoint)
}

// bucketOf is the bucket of servers, and the database that says what counts in it.
type bucketOf struct {
	t        *testing.T
	keys     string
	location s3.Location
	client   *awss3.Client
}

// names returns the keys of the objects below the prefix, without the prefix.
func (b *bucketOf) names() (names []string) {
	b.t.Helper()
	prefix := b.location.Prefix + "/"
	page, err := b.client.ListObjectsV2(b.t.Context(),
		&awss3.ListObjectsV2Input{Bucket: &b.location.Bucket, Prefix: &prefix})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, listed := range page.Contents {
		if name := strings.TrimPrefix(*listed.Key, prefix); name != "packhorse.json" {
			names = append(names, name)
		}
	}
	return names
}

// split returns the objects that are registered, or waiting to be deleted, and the others.
func (b *bucketOf) split() (registered, others []string) {
	b.t.Helper()
	keys, err := postgres.Open(b.t.Context(), postgres.Options{URL: b.keys, Conns: 2})
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = keys.Close() }()
	var known []string
	for name, err := range odb.UsedFiles(b.t.Context(), keys) {
		if err != nil {
			b.t.Fatal(err)
		}
		known = append(known, name)
	}
	for _, name := range b.names() {
		if slices.Contains(known, path.Base(name)) {
			registered = append(registered, name)
		} else {
			others = append(others, name)
		}
	}
	return registered, others
}

func (b *bucketOf) registered() []string {
	b.t.Helper()
	registered, _ := b.split()
	return registered
}

func (b *bucketOf) unregistered() []string {
	b.t.Helper()
	_, others := b.split()
	return others
}

// copy stores a copy of an object.
func (b *bucketOf) copy(from, to string) {
	b.t.Helper()
	source, key := b.location.Bucket+"/"+b.location.Prefix+"/"+from, b.location.Prefix+"/"+to
	if _, err := b.client.CopyObject(b.t.Context(),
		&awss3.CopyObjectInput{Bucket: &b.location.Bucket, CopySource: &source, Key: &key}); err != nil {
		b.t.Fatal(err)
	}
}
