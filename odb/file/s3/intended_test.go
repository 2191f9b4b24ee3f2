package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
)

// journal is what happened, in order.
type journal struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// kinds returns the lines without repetitions that follow each other.
func (j *journal) kinds() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Compact(slices.Clone(j.lines))
}

// journaled is an intent that tells what it is asked, and may refuse.
type journaled struct {
	journal       *journal
	begin, upload error
	ended         chan error
}

func (i *journaled) Begin(context.Context) error {
	i.journal.add("begin")
	return i.begin
}

func (i *journaled) Upload(_ context.Context, id string) error {
	i.journal.add("note")
	if id == "" {
		return errors.New("an upload without an ID")
	}
	return i.upload
}

func (i *journaled) End(err error) { i.ended <- err }

// TestIntents sends nothing before the intent is durable, and no part before the upload is in it.
// What is left when that fails is nothing.
func TestIntents(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	errRefused := errors.New("refused")
	for name, c := range map[string]struct {
		size          int
		begin, upload error
		want          []string
	}{
		"small":            {size: 1000, want: []string{"begin", "PUT"}},
		"small, refused":   {size: 1000, begin: errRefused, want: []string{"begin"}},
		"parts":            {size: 17 << 20, want: []string{"begin", "POST uploads", "note", "PUT", "begin", "POST"}},
		"parts, refused":   {size: 17 << 20, begin: errRefused, want: []string{"begin"}},
		"parts, not noted": {size: 17 << 20, upload: errRefused, want: []string{"begin", "POST uploads", "note"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := &journal{}
			options := server.Options(t)
			options.Endpoint = server.Proxy(t, func(service http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					line := r.Method
					if r.URL.Query().Has("uploads") {
						line += " uploads"
					}
					events.add(line)
					service.ServeHTTP(w, r)
				})
			})
			store := s3test.Open(t, options)
			intent := &journaled{journal: events, begin: c.begin, upload: c.upload, ended: make(chan error, 1)}
			w, err := store.CreateIntended(t.Context(), "name.segment", intent)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, c.size)); err != nil {
				t.Fatal(err)
			}
			err = w.Seal(t.Context())
			if refused := c.begin != nil || c.upload != nil; !refused && err != nil || refused && !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
			if got := events.kinds(); !slices.Equal(got[:min(len(got), len(c.want))], c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if err == nil {
				if len(intent.ended) > 0 {
					t.Error("the intent of a sealed file has ended")
				}
				return
			}
			if err := <-intent.ended; err != nil {
				t.Errorf("something may be left: %v", err)
			}
			wantUploads(t, server, options, store, 0)
			if _, err := store.Open(t.Context(), "name.segment"); !errors.Is(err, file.ErrNotFound) {
				t.Errorf("a file whose writing was refused: %v", err)
			}
		})
	}
}

// TestDiscard removes what a killed writer has left: its file, the upload that its intent knows,
// and one that it does not.
func TestDiscard(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	options := server.Options(t)
	store := s3test.Open(t, options)
	seal(t, store, "name.segment", []byte("content"))
	var key string
	client := server.Client()
	page, err := client.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{
		Bucket: &options.Bucket, Prefix: &options.Prefix,
	})
	if err != nil || len(page.Contents) != 1 {
		t.Fatal(page, err)
	}
	key = aws.ToString(page.Contents[0].Key)
	begin := func() string {
		out, err := client.CreateMultipartUpload(t.Context(), &awss3.CreateMultipartUploadInput{
			Bucket: &options.Bucket, Key: &key,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.UploadPart(t.Context(), &awss3.UploadPartInput{
			Bucket: &options.Bucket, Key: &key, UploadId: out.UploadId, PartNumber: aws.Int32(1),
			Body: bytes.NewReader([]byte("part")),
		})
		if err != nil {
			t.Fatal(err)
		}
		return *out.UploadId
	}
	known := begin()
	begin()
	wantUploads(t, server, options, store, 2)
	for range 2 { // the second time there is nothing
		if err := store.Discard(t.Context(), "name.segment", known); err != nil {
			t.Fatal(err)
		}
		wantUploads(t, server, options, store, 0)
		if _, err := store.Open(t.Context(), "name.segment"); !errors.Is(err, file.ErrNotFound) {
			t.Errorf("a discarded file: %v", err)
		}
	}
	if err := store.Discard(t.Context(), "/", ""); !errors.Is(err, file.ErrName) {
		t.Error(err)
	}
}

func seal(t *testing.T, store file.Store, name string, content []byte) {
	t.Helper()
	w, err := store.Create(t.Context(), name)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(content))
	}
	if err == nil {
		err = w.Seal(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wantUploads(t *testing.T, server *s3test.Server, options s3.Options, store *s3.Store, want int) {
	t.Helper()
	if got := uploads(t, server, options, store, "name.segment"); got != want {
		t.Errorf("%d uploads, want %d", got, want)
	}
}
