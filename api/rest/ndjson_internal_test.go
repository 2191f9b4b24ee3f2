package rest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
)

// FuzzChunk compares the fast path with the strict decoder: it may decline a line, never read it
// differently.
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

// FuzzMetadata reads a first line of any bytes without a panic; accepted metadata names a branch
// and every operation. The engine checks the rest.
func FuzzMetadata(f *testing.F) {
	f.Add(
		[]byte(
			`{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a"},"files":[{"path":"a","content_id":"1"}]}}`,
		),
	)
	f.Add([]byte(`{"metadata":{"target_branch":"main","target_branch":"dev"}}`))
	f.Add([]byte(`{"metadata":null}`))
	f.Add([]byte(strings.Repeat(`{"metadata":`, 40)))
	f.Fuzz(func(t *testing.T, line []byte) {
		lines := readLines(bytes.NewReader(line))
		defer lines.close()
		metadata, err := readMetadata(exchangetest.New("POST", "/", nil), lines, 1000)
		if err != nil {
			return
		}
		request, err := metadata.upload()
		if err == nil && (request.Target.Branch == "" || len(request.Operations) != len(metadata.Files)) {
			t.Fatalf("%q was taken as %+v", line, request)
		}
	})
}

// readLines reads the lines of a body, with as much memory as they need.
func readLines(body io.Reader) *lineReader {
	return newLineReader(exchangetest.New("POST", "/", nil), body)
}

// TestFilesAreCounted stops at the limit of file operations, in the midst of malformed JSON.
func TestFilesAreCounted(t *testing.T) {
	t.Parallel()
	const line = `{"metadata":{"target_branch":"main","files":[{},{},{}`
	for filesMax, want := range map[int]string{
		2: "files (--operations-max): more than the limit of 2", 4: "malformed JSON",
	} {
		lines := readLines(strings.NewReader(line + " no JSON"))
		if _, err := readMetadata(exchangetest.New("POST", "/", nil), lines, filesMax); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("with at most %d: %v, want %q", filesMax, err, want)
		}
	}
}

// TestLongLinesAreReserved reads a line that is longer than the first buffer: its memory is
// reserved before it is allocated, and released.
func TestLongLinesAreReserved(t *testing.T) {
	t.Parallel()
	x := exchangetest.New("POST", "/", nil)
	body := strings.NewReader(strings.Repeat("x", 3*lineBufferMin) + "\n")
	lines := newLineReader(x, body)
	if _, err := lines.next(1 << 20); err != nil {
		t.Fatal(err)
	}
	lines.close()
	x.Respond(200, "", nil)
	if _, err := x.Finish(); err != nil {
		t.Error(err)
	}
	busy := exchangetest.New("POST", "/", nil)
	busy.ReserveErr = exchange.ErrBusy
	body.Reset(strings.Repeat("x", 3*lineBufferMin))
	if _, err := newLineReader(busy, body).next(1 << 20); !errors.Is(err, exchange.ErrBusy) {
		t.Errorf("without memory: %v", err)
	}
	if taken := body.Size() - int64(body.Len()); taken > lineBufferMin {
		t.Errorf("%d bytes were read without memory for them", taken)
	}
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
				lines := readLines(arrives(strings.NewReader(test.body)))
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
	if _, err := readLines(strings.NewReader(long)).next(1000); !errors.As(err, &limit) {
		t.Errorf("a line over the limit gave %v, want a LimitError", err)
	}
}

// BenchmarkChunk decodes the line of a chunk of 4 MiB.
func BenchmarkChunk(b *testing.B) {
	line := []byte(`{"blob_chunk":{"content_id":"0b9d7b46-5c22-4d8b-a2e5-7f6f2b8b1c11","data":"` +
		strings.Repeat("QUJD", chunkBytesMax/3) + `","eof":false}}`)
	var decoder chunkDecoder
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := decoder.decode(line); err != nil {
			b.Fatal(err)
		}
	}
}
