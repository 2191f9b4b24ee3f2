package commit_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"packhorse/engine/commit"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	type edits = []commit.Edit
	tests := map[string]struct {
		data, want string
		edits      edits
		err        error
		failed     commit.EditError
	}{
		"none":         {data: "a", want: "a"},
		"once":         {data: "one two", edits: edits{{Old: "two", New: "2"}}, want: "one 2"},
		"removed":      {data: "one two", edits: edits{{Old: " two"}}, want: "one"},
		"all":          {data: "aXbXc", edits: edits{{Old: "X", New: "--", Count: 2}}, want: "a--b--c"},
		"one by one":   {data: "a", edits: edits{{Old: "a", New: "bb"}, {Old: "bb", New: "c"}}, want: "c"},
		"with itself":  {data: "ab", edits: edits{{Old: "a", New: "aa"}}, want: "aab"},
		"no UTF-8":     {data: "\xff\xfea\x00", edits: edits{{Old: "a\x00", New: "b"}}, want: "\xff\xfeb"},
		"line ends":    {data: "a\r\nb\r\n", edits: edits{{Old: "\nb", New: "\nc"}}, want: "a\r\nc\r\n"},
		"the whole":    {data: "abc", edits: edits{{Old: "abc", New: ""}}, want: ""},
		"side by side": {data: "abab", edits: edits{{Old: "ab", New: "c", Count: 2}}, want: "cc"},
		"not there":    {data: "a", edits: edits{{Old: "b"}}, err: commit.ErrEdit, failed: commit.EditError{Expected: 1}},
		"in nothing":   {edits: edits{{Old: "b"}}, err: commit.ErrEdit, failed: commit.EditError{Expected: 1}},
		"too often": {
			data: "a a a", edits: edits{{Old: "a", Count: 2}}, err: commit.ErrEdit, failed: commit.EditError{Found: 3, Expected: 2},
		},
		"the second": {
			data: "a", edits: edits{{Old: "a", New: "b"}, {Old: "a"}}, err: commit.ErrEdit,
			failed: commit.EditError{Index: 1, Expected: 1},
		},
		"within itself": {
			data: "xababax", edits: edits{{Old: "aba"}}, err: commit.ErrEdit,
			failed: commit.EditError{Found: 1, Expected: 1, Overlaps: true},
		},
		"as often as expected, within itself": {
			data: "aaaa", edits: edits{{Old: "aa", Count: 2}}, err: commit.ErrEdit,
			failed: commit.EditError{Found: 2, Expected: 2, Overlaps: true},
		},
		"largest": {
			data: strings.Repeat("a", 8), edits: edits{{Old: "a", New: strings.Repeat("b", commit.EditedBytesMax/8), Count: 8}},
			want: strings.Repeat("b", commit.EditedBytesMax),
		},
		"too large": {
			data: strings.Repeat("a", 8), edits: edits{{Old: "a", New: strings.Repeat("b", commit.EditedBytesMax/8+1), Count: 8}},
			err: commit.ErrTooLarge,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := []byte(test.data)
			var work int64
			got, err := commit.Replace(t.Context(), data, test.edits, &work)
			if !errors.Is(err, test.err) || string(got) != test.want && err == nil {
				t.Fatalf("got %.100q, %v, want %.100q, %v", got, err, test.want, test.err)
			}
			if failed, ok := errors.AsType[*commit.EditError](err); ok && *failed != test.failed {
				t.Errorf("it fails with %+v, want %+v", *failed, test.failed)
			}
			if string(data) != test.data {
				t.Errorf("the data is now %.100q", data)
			}
		})
	}
}

// TestReplaceWork refuses edits before they have gone through too much.
func TestReplaceWork(t *testing.T) {
	t.Parallel()
	work := int64(commit.EditWorkBytesMax - 4)
	if _, err := commit.Replace(t.Context(), []byte("abc"), []commit.Edit{{Old: "b", New: "x"}}, &work); err != nil {
		t.Fatal(err)
	}
	var limit *commit.LimitError
	if _, err := commit.Replace(t.Context(), []byte("a"), []commit.Edit{{Old: "a"}}, &work); !errors.As(err, &limit) {
		t.Errorf("got error %v, want a LimitError", err)
	}
}

// FuzzReplace holds edits to what they mean: each place of old, of which there are as many as
// expected, wherever one begins, becomes new.
func FuzzReplace(f *testing.F) {
	f.Add([]byte("one two"), "two", "2", uint8(1))
	f.Add([]byte("aaa"), "aa", "b", uint8(1))
	f.Add([]byte("ababab"), "ab", "", uint8(3))
	f.Add([]byte("\xffa\x00"), "\x00", "b", uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, old, replacement string, count uint8) {
		if old == "" {
			return
		}
		var at []int
		for i := range data {
			if bytes.HasPrefix(data[i:], []byte(old)) {
				at = append(at, i)
			}
		}
		expected := max(int(count), 1)
		fits := len(at) == expected
		var want []byte
		end := 0
		for _, i := range at {
			if i < end {
				fits = false
				break
			}
			want = append(append(want, data[end:i]...), replacement...)
			end = i + len(old)
		}
		want = append(want, data[end:]...)
		var work int64
		got, err := commit.Replace(t.Context(), data, []commit.Edit{{Old: old, New: replacement, Count: int(count)}}, &work)
		if fits != (err == nil) || err != nil && !errors.Is(err, commit.ErrEdit) {
			t.Fatalf("%q in %q %d times: %v", old, data, expected, err)
		}
		if fits && !bytes.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
