package pktline_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/pack/pktline"
)

var longest = strings.Repeat("x", pktline.PayloadMax)

func TestRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string
		err  error
	}{
		"nothing": {err: io.EOF},
		"lines":   {in: "0006a\n0007bc\n", want: []string{"data a\n", "data bc\n"}, err: io.EOF},
		"controls": {
			in: "00000001000200050", want: []string{"flush", "delim", "response-end", "data 0"}, err: io.EOF,
		},
		"empty data":        {in: "0004", want: []string{"data "}, err: io.EOF},
		"upper case":        {in: "000Babcdefg000babcdefg", want: []string{"data abcdefg", "data abcdefg"}, err: io.EOF},
		"longest":           {in: "fff0" + longest + "0000", want: []string{"data " + longest, "flush"}, err: io.EOF},
		"too long":          {in: "fff1" + longest + "x", err: pktline.ErrTooLong},
		"much too long":     {in: "ffff", err: pktline.ErrTooLong},
		"three":             {in: "0003", err: pktline.ErrLength},
		"no digits":         {in: "0000PACK", want: []string{"flush"}, err: pktline.ErrLength},
		"sign":              {in: "+004", err: pktline.ErrLength},
		"cut off in length": {in: "000", err: io.ErrUnexpectedEOF},
		"cut off in data":   {in: "0006a", err: io.ErrUnexpectedEOF},
		"no data":           {in: "0006", err: io.ErrUnexpectedEOF},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"bytes": iotest.OneByteReader,
		"eof":   iotest.DataErrReader,
	}
	for name, test := range tests {
		for how, wrap := range readers {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				r := pktline.NewReader(wrap(strings.NewReader(test.in)))
				for i := 0; ; i++ {
					kind, payload, err := r.Read()
					if err != nil {
						if !errors.Is(err, test.err) || i != len(test.want) {
							t.Fatalf("line %d: error %v, want %v after %d lines", i, err, test.err, len(test.want))
						}
						return
					}
					got := kind.String()
					if kind == pktline.Data {
						got = "data " + string(payload)
					} else if payload != nil {
						t.Errorf("line %d: a %s with payload", i, kind)
					}
					if i >= len(test.want) || got != test.want[i] {
						t.Fatalf("line %d: %.40q, want %d lines", i, got, len(test.want))
					}
				}
			})
		}
	}
}

func TestRest(t *testing.T) {
	t.Parallel()
	pack := "PACK" + strings.Repeat("0006", 5000)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "eof": iotest.DataErrReader,
	} {
		r := pktline.NewReader(wrap(strings.NewReader("0006a\n0000" + pack)))
		for range 2 {
			if _, _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := io.ReadAll(r.Rest()); err != nil || string(got) != pack {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := pktline.NewReader(io.MultiReader(strings.NewReader("0006a"), iotest.ErrReader(broken)))
	if _, _, err := r.Read(); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, _, err := pktline.NewReader(stuckReader{}).Read(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a source that gives nothing: error %v", err)
	}
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := pktline.NewWriter(&out)
	for _, step := range []error{
		w.Data([]byte("a\n")), w.Delim(), w.String("bc"), w.Printf("%d %s\n", 7, "d"), w.Data(nil), w.ResponseEnd(),
		w.Flush(), w.String(longest),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	want := "0006a\n00010006bc00087 d\n000400020000fff0" + longest
	if out.String() != want {
		t.Errorf("got %.60q", out.String())
	}
	if got := string(pktline.AppendLine(pktline.AppendLine([]byte("x"), []byte("a")), nil)); got != "x0005a0004" {
		t.Errorf("AppendLine: %q", got)
	}
	out.Reset()
	for name, err := range map[string]error{
		"Data": w.Data([]byte(longest + "x")), "String": w.String(longest + "x"), "Printf": w.Printf("%sx", longest),
	} {
		if !errors.Is(err, pktline.ErrTooLong) || out.Len() > 0 {
			t.Errorf("%s: error %v, %d bytes written", name, err, out.Len())
		}
	}
}

func TestSideband(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 40_000)
	for _, lineMax := range []int{0, 1, 17, pktline.SidebandSmall, pktline.SidebandLarge, 1 << 20} {
		var out bytes.Buffer
		sizes := &sizeWriter{w: &out}
		w := pktline.NewWriter(sizes)
		s := pktline.NewSideband(w, pktline.BandData, lineMax)
		if n, err := s.Write(content); n != len(content) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if err := pktline.NewSideband(w, pktline.BandProgress, 0).Printf("%d %%\r", 50); err != nil {
			t.Fatal(err)
		}
		if sizes.max > 256<<10 {
			t.Errorf("lineMax %d: a write of %d bytes", lineMax, sizes.max)
		}
		var data, progress []byte
		r := pktline.NewReader(&out)
		for {
			_, payload, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if lineMax > 0 && len(payload)-1 > lineMax && payload[0] == pktline.BandData {
				t.Fatalf("lineMax %d: a line of %d bytes", lineMax, len(payload)-1)
			}
			switch payload[0] {
			case pktline.BandData:
				data = append(data, payload[1:]...)
			case pktline.BandProgress:
				progress = append(progress, payload[1:]...)
			}
		}
		if !bytes.Equal(data, content) || string(progress) != "50 %\r" {
			t.Errorf("lineMax %d: %d bytes of data, progress %q", lineMax, len(data), progress)
		}
	}
}

type sizeWriter struct {
	w   io.Writer
	max int
}

func (w *sizeWriter) Write(p []byte) (int, error) {
	w.max = max(w.max, len(p))
	return w.w.Write(p)
}

func TestSidebandError(t *testing.T) {
	t.Parallel()
	s := pktline.NewSideband(pktline.NewWriter(&limitWriter{left: 1}), pktline.BandData, 1000)
	n, err := s.Write(make([]byte, 1<<20))
	if err == nil || n == 0 || n >= 1<<20 {
		t.Errorf("%d bytes, error %v", n, err)
	}
}

// limitWriter fails after a number of writes.
type limitWriter struct{ left int }

func (w *limitWriter) Write(p []byte) (int, error) {
	if w.left == 0 {
		return 0, fmt.Errorf("full: %w", io.ErrShortWrite)
	}
	w.left--
	return len(p), nil
}
