package object_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"packhorse/pack/object"
)

// IDs of objects that exist nowhere. Each has one type throughout, as git insists.
const (
	hexA = "0123456789abcdef0123456789abcdef01234567" // a tree
	hexB = "89abcdef0123456789abcdef0123456789abcdef" // a commit
	hexC = "456789abcdef0123456789abcdef0123456789ab" // a blob
	hexD = "cdef0123456789abcdef0123456789abcdef0123" // a tag
)

func mustID(tb testing.TB, s string) object.ID {
	tb.Helper()
	id, err := object.ParseID(s)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func TestParseID(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in string
		ok bool
	}{
		"digits":           {in: hexA, ok: true},
		"zero":             {in: strings.Repeat("0", 40), ok: true},
		"upper case":       {in: strings.ToUpper(hexA)},
		"one upper digit":  {in: "A" + hexA[1:]},
		"too short":        {in: hexA[1:]},
		"too long":         {in: hexA + "0"},
		"no digit":         {in: "g" + hexA[1:]},
		"empty":            {},
		"very long":        {in: strings.Repeat("0", 10000)},
		"ends in newlines": {in: hexA[2:] + "\n\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := object.ParseID(test.in)
			if test.ok != (err == nil) || !test.ok && !errors.Is(err, object.ErrInvalidID) {
				t.Fatalf("error %v", err)
			}
			if err != nil && len(err.Error()) > 200 {
				t.Errorf("the error repeats hostile input: %d bytes", len(err.Error()))
			}
			if test.ok && (id.String() != test.in || string(id.AppendHex([]byte("x"))) != "x"+test.in) {
				t.Errorf("got %s", id)
			}
		})
	}
}

func TestIDText(t *testing.T) {
	t.Parallel()
	type row struct {
		ID object.ID `json:"id"`
	}
	out, err := json.Marshal(row{mustID(t, hexA)})
	if err != nil || string(out) != `{"id":"`+hexA+`"}` {
		t.Fatalf("%s, %v", out, err)
	}
	var back row
	if err := json.Unmarshal(out, &back); err != nil || back.ID.String() != hexA {
		t.Errorf("%s, %v", back.ID, err)
	}
	if err := json.Unmarshal([]byte(`{"id":"main"}`), &back); !errors.Is(err, object.ErrInvalidID) {
		t.Errorf("error %v", err)
	}
}

func TestIDCompare(t *testing.T) {
	t.Parallel()
	a, b := mustID(t, hexA), mustID(t, hexB)
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("IDs do not sort by their bytes")
	}
	if a.IsZero() || !object.ZeroID.IsZero() {
		t.Error("IsZero")
	}
}

func TestType(t *testing.T) {
	t.Parallel()
	for _, want := range []object.Type{object.TypeCommit, object.TypeTree, object.TypeBlob, object.TypeTag} {
		if got, err := object.ParseType(want.String()); err != nil || got != want {
			t.Errorf("%s: %v, %v", want, got, err)
		}
	}
	for _, name := range []string{"", "Commit", "blobs", "type(0)"} {
		if _, err := object.ParseType(name); !errors.Is(err, object.ErrUnknownType) {
			t.Errorf("%q: error %v", name, err)
		}
	}
	if object.Type(0).Valid() || object.Type(5).Valid() {
		t.Error("invalid types are valid")
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode, canonical object.Mode
		kind            object.Type
		text            string
	}{
		"file":       {0o100644, object.ModeBlob, object.TypeBlob, "100644"},
		"group file": {0o100664, object.ModeBlob, object.TypeBlob, "100664"},
		"executable": {0o100755, object.ModeExec, object.TypeBlob, "100755"},
		"odd script": {0o100775, object.ModeExec, object.TypeBlob, "100775"},
		"symlink":    {0o120000, object.ModeSymlink, object.TypeBlob, "120000"},
		"tree":       {0o040000, object.ModeTree, object.TypeTree, "040000"},
		"odd tree":   {0o040755, object.ModeTree, object.TypeTree, "040755"},
		"gitlink":    {0o160000, object.ModeGitlink, object.TypeCommit, "160000"},
		"device":     {0o020000, object.ModeGitlink, object.TypeCommit, "020000"},
		"no type":    {0o000644, object.ModeGitlink, object.TypeCommit, "000644"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := test.mode
			if m.Canonical() != test.canonical || m.Type() != test.kind || m.String() != test.text {
				t.Errorf("canonical %s, type %s, text %s", m.Canonical(), m.Type(), m)
			}
			if m.IsGitlink() != (test.canonical == object.ModeGitlink) {
				t.Errorf("IsGitlink is %v", m.IsGitlink())
			}
		})
	}
}
