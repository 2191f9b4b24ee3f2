package rest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
)

// FuzzChunk holds the fast path to what the strict decoder answers: it may decline a line, never read it differently.
func FuzzChunk(f *testing.F) {
	for _, seed := range []string{
		`{"blob_chunk":{"content_id":"1","data":"eA==","eof":true}}`,
		`{"blob_chunk":{"content_id":"1","data":"","eof":false}}`,
		`{"blob_chunk":{"content_id":"","data":"eA==","eof":true}}`,
		`{"blob_chunk":{"content_id":"a\"b","data":"eA==","eof":true}}`,
		`{"blob_chunk":{"content_id":"1","data":"eB==","eof":true}}`,
		`{"blob_chunk":{"content_id":"1","data":"eA","eof":true}}`,
		`{"blob_chunk":{"content_id":"1","data":"eA==","eof":true,"eof":false}}`,
		`{"blob_chunk":{"content_id":"1","data":"a","eof":true}},"data":"b","eof":true}}`,
		"{\"blob_chunk\":{\"content_id\":\"1\",\"data\":\"eA=\r=\",\"eof\":true}}",
		"{\"blob_chunk\":{\"content_id\":\"\xff\",\"data\":\"eA==\",\"eof\":true}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var fast, slow chunkDecoder
		got, ok := fast.common(line)
		if !ok {
			return
		}
		want, err := slow.strict(line)
		if err != nil {
			t.Fatalf("the fast path takes what the strict decoder refuses: %v", err)
		}
		if got.contentID != want.contentID || got.eof != want.eof || !bytes.Equal(got.data, want.data) {
			t.Fatalf("the fast path reads %+v, the strict decoder %+v", got, want)
		}
	})
}

// FuzzMetadata reads a first line of any bytes without a panic, and what it takes names a branch and every operation. The engine checks the rest.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a"},"files":[{"path":"a","content_id":"1"}]}}`))
	f.Add([]byte(`{"metadata":{"target_branch":"main","target_branch":"dev"}}`))
	f.Add([]byte(`{"metadata":null}`))
	f.Add([]byte(strings.Repeat(`{"metadata":`, 40)))
	f.Fuzz(func(t *testing.T, line []byte) {
		metadata, err := readMetadata(newLineReader(bytes.NewReader(line)))
		if err != nil {
			return
		}
		request, err := metadata.upload()
		if err == nil && (request.Target.Branch == "" || len(request.Operations) != len(metadata.Files)) {
			t.Fatalf("%q was taken as %+v", line, request)
		}
	})
}

func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10) // more than the reader's own buffer
	tests := map[string]struct {
		body  string
		lines []string
		err   error
	}{
		"lines":           {"a\nbc\n", []string{"a", "bc"}, io.EOF},
		"no end":          {"a\nbc", []string{"a", "bc"}, io.EOF},
		"carriage return": {"a\r\nb\r\n", []string{"a", "b"}, io.EOF},
		"blank lines":     {"\n\na\n \t\n", []string{"a"}, io.EOF},
		"long":            {long + "\nb\n", []string{long, "b"}, io.EOF},
		"long and short":  {"a\n" + long + "\nb\n" + long + long + "\nc", []string{"a", long, "b", long + long, "c"}, io.EOF},
		"empty":           {"", nil, io.EOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, arrives := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
				lines := newLineReader(arrives(strings.NewReader(test.body)))
				for _, want := range test.lines {
					got, err := lines.next(1 << 20)
					if err != nil || string(got) != want {
						t.Fatalf("got %.40q, %v, want %.40q", got, err, want)
					}
				}
				for range 2 {
					if _, err := lines.next(1 << 20); !errors.Is(err, test.err) {
						t.Errorf("the end is %v, want %v", err, test.err)
					}
				}
			}
		})
	}
	var limit *exchange.LimitError
	if _, err := newLineReader(strings.NewReader(long)).next(1000); !errors.As(err, &limit) {
		t.Errorf("a line over the limit gave %v, want a LimitError", err)
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	tests := map[string]int{
		`{}`: 1, `[{"a":[1]}]`: 3, `"[[["`: 0, `{"a\"[[":1}`: 1, `{"a":"\\","b":[]}`: 2, ``: 0, `]]]`: 0,
	}
	for text, want := range tests {
		if got := depthOf([]byte(text)); got != want {
			t.Errorf("depthOf(%s) = %d, want %d", text, got, want)
		}
	}
}

// BenchmarkChunk decodes the line of a chunk of 4 MiB.
func BenchmarkChunk(b *testing.B) {
	line := []byte(`{"blob_chunk":{"content_id":"0b9d7b46-5c22-4d8b-a2e5-7f6f2b8b1c11","data":"` + strings.Repeat("QUJD", chunkBytesMax/3) + `","eof":false}}`)
	var decoder chunkDecoder
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := decoder.decode(line); err != nil {
			b.Fatal(err)
		}
	}
}
