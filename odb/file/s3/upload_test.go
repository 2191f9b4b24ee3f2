package s3_test

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
)

// anybody has credentials that nobody looks at.
type anybody struct{}

func (anybody) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "body"}, nil
}

// list returns the names in a folder.
func list(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// put stores a byte under a key that begins with the prefix of options.
func put(t *testing.T, server *s3test.Server, options s3.Options, key string) {
	t.Helper()
	_, err := server.Client().PutObject(t.Context(), &awss3.PutObjectInput{
		Bucket: &options.Bucket, Key: aws.String(options.Prefix + "/" + key), Body: strings.NewReader("x"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// objects walks the first thousand keys under the prefix of options.
func objects(t *testing.T, server *s3test.Server, options s3.Options) iter.Seq[string] {
	t.Helper()
	page, err := server.Client().ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{
		Bucket: &options.Bucket, Prefix: aws.String(options.Prefix + "/"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string) bool) {
		for _, object := range page.Contents {
			if !yield(*object.Key) {
				return
			}
		}
	}
}

// uploads returns how many multipart uploads of a file are not complete. It asks for the key, since
// MinIO lists nothing for a prefix.
func uploads(t *testing.T, server *s3test.Server, options s3.Options, store *s3.Store, name string) int {
	t.Helper()
	page, err := server.Client().ListMultipartUploads(t.Context(), &awss3.ListMultipartUploadsInput{
		Bucket: &options.Bucket, Prefix: aws.String(s3.Key(store, name)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Uploads)
}

// partsSeen returns a service that tells a channel the number of each part that was sent.
func partsSeen(t *testing.T, server *s3test.Server) (*service, <-chan string) {
	t.Helper()
	service := disturbed(t, server)
	seen := make(chan string, 100)
	service.disturb(func(r *http.Request) fault {
		if !isPart(r) {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
			service.ServeHTTP(w, r)
			seen <- r.URL.Query().Get("partNumber")
		}
	})
	return service, seen
}

// grow writes a file of five parts, of which the second and the third are sent before it is sealed.
func grow(t *testing.T, store file.Store, data []byte, seen <-chan string) file.Writer {
	t.Helper()
	w, err := store.Create(t.Context(), "grown")
	if err != nil {
		t.Fatal(err)
	}
	for rest := data; len(rest) > 0; {
		n := min(3_000_000, len(rest))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	sent := map[string]bool{<-seen: true, <-seen: true}
	if !sent["2"] || !sent["3"] {
		t.Fatalf("parts %v were sent while the file grew", sent)
	}
	return w
}

// TestGrow sends parts while a file grows, and sends again what is changed after that.
func TestGrow(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	service, seen := partsSeen(t, server)
	store := s3test.Open(t, service.options)
	data := sample(1, 5*16<<20+1000)
	w := grow(t, store, data, seen)
	for _, at := range []int{0, 33 << 20, len(data) - 7} { // in the first, the third and the last part
		copy(data[at:], "patched")
		if _, err := w.WriteAt([]byte("patched"), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for range len(seen) {
		count[<-seen]++
	}
	if len(count) != 5 || count["2"] != 0 || count["3"] != 1 || count["1"] != 1 || count["6"] != 1 {
		t.Errorf("parts sent by Seal: %v", count)
	}
	if got, err := read(t, store, "grown"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, %v", len(got), err)
	}
	if got := list(t, service.options.Dir); len(got) != 1 {
		t.Errorf("left in the local folder: %q", got)
	}
}

// TestSealBeside seals a file while the part that was sent before does not arrive: it does when all
// others have.
func TestSealBeside(t *testing.T) {
	t.Parallel()
	service := disturbed(t, s3test.Start(t))
	var others sync.WaitGroup
	others.Add(4)
	begun := make(chan struct{})
	service.disturb(func(r *http.Request) fault {
		switch {
		case !isPart(r):
			return nil
		case r.URL.Query().Get("partNumber") != "2":
			return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
				service.ServeHTTP(w, r)
				others.Done()
			}
		}
		return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
			close(begun)
			others.Wait()
			service.ServeHTTP(w, r)
		}
	})
	store := s3test.Open(t, service.options)
	data := sample(1, 4*16<<20+1000)
	w, err := store.Create(t.Context(), "grown")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, store, "grown"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, %v", len(got), err)
	}
}

// TestAbort ends a writer that has sent parts.
func TestAbort(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	service, seen := partsSeen(t, server)
	store := s3test.Open(t, service.options)
	w := grow(t, store, sample(1, 5*16<<20), seen)
	if got := uploads(t, server, service.options, store, "grown"); got != 1 {
		t.Errorf("%d uploads, want 1", got)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if got := list(t, service.options.Dir); len(got) != 1 {
		t.Errorf("left in the local folder: %q", got)
	}
	if err := store.Close(); err != nil { // waits
		t.Fatal(err)
	}
	if got := uploads(t, server, service.options, store, "grown"); got != 0 {
		t.Errorf("%d uploads are left", got)
	}
}

// TestSealTo keeps the spool of a sealed file.
func TestSealTo(t *testing.T) {
	t.Parallel()
	options := s3test.Start(t).Options(t)
	store := s3test.Open(t, options)
	data := sample(1, 300_001) // the end of it is in the buffer of the spool
	for path, want := range map[string]bool{t.TempDir() + "/kept": true, t.TempDir() + "/missing/kept": false} {
		w, err := store.Create(t.Context(), map[bool]string{true: "a", false: "b"}[want])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		kept, err := w.(interface {
			SealTo(ctx context.Context, path string) (bool, error)
		}).SealTo(t.Context(), path)
		if kept != want || err != nil {
			t.Errorf("%s: %t, %v", path, kept, err)
		}
		if got, err := os.ReadFile(path); want && (err != nil || !bytes.Equal(got, data)) {
			t.Errorf("%s: %d bytes, or others, %v", path, len(got), err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if got, err := read(t, store, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, or others, %v", name, len(got), err)
		}
	}
	if got := list(t, options.Dir); len(got) != 1 {
		t.Errorf("left in the local folder: %q", got)
	}
}
