package revision_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"packhorse/engine/revision"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		base  string
		steps bool
	}{
		"main": {"main", false}, "HEAD": {"HEAD", false}, "@": {"@", false}, "a@b": {"a@b", false}, "a.b": {"a.b", false},
		"refs/heads/a/b": {"refs/heads/a/b", false}, "-": {"-", false}, "a{b}": {"a{b}", false}, "a@": {"a@", false},
		"main~": {"main", true}, "main~0": {"main", true}, "main~007": {"main", true}, "@^": {"@", true}, "a@^2": {"a@", true},
		"HEAD^0": {"HEAD", true}, "HEAD^{}": {"HEAD", true}, "HEAD^{commit}": {"HEAD", true},
		"HEAD~~^^2~3^{}^{commit}~": {"HEAD", true}, "x~99999999999999999999999": {"x", true},
		"x" + strings.Repeat("^", revision.StepsMax): {"x", true},
		strings.Repeat("x", revision.TextMax):        {strings.Repeat("x", revision.TextMax), false},
	}
	for text, want := range tests {
		e, err := revision.Parse(text)
		if err != nil || e.Base() != want.base || e.HasSteps() != want.steps || e.String() != text {
			t.Errorf("%.100q: base %.100q, steps %t, prints %.100q, %v", text, e.Base(), e.HasSteps(), e.String(), err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"": "nothing", "a..b": "a..b", "..b": "a..b", "a..": "a..b", "a...b": "a...b", "a~1..b": "a..b", "^a": "^a", "^": "^a",
		"^{}":   "^a",
		":path": ":path", ":0:path": ":path", "a:path": "rev:path", "a~2:path": "rev:path", "a:": "rev:path", ":/text": ":/text",
		"@{-1}": "@{-1}", "a@{-2}": "@{-2}", "@{u}": "@{u}", "a@{upstream}": "@{upstream}", "a@{UPSTREAM}": "@{UPSTREAM}",
		"@{push}": "@{push}", "a@{push}~1": "@{push}", "a@{1}": "a moment is a time", "@{yesterday}": "a moment is a time",
		"@{2020-01-01}": "a moment is a time", "a~1@{1}": "directly behind", "@@{1}": "a moment is a time", "a@{1": "not closed",
		"a@{seq:}": "a moment is", "a@{seq:-1}": "a moment is", "a@{seq: 1}": "a moment is", "a@{}": "a moment is",
		"a@{seq:1}@{seq:2}": "taken once", "a@{seq:1}x": "no step", "a@{seq:1": "not closed",
		strings.Repeat("a", 40) + "@{seq:1}": "the same at every moment",
		"a^{tree}":                           "^{tree}", "a^{blob}": "^{blob}", "a^{tag}": "^{tag}", "a^{object}": "^{object}", "a^{/x}": "^{/text}",
		"a^{/": "^{/text}", "a^{x": "not closed", "a^@": "^@", "a^!": "^!", "a^-": "^-", "a^-2": "^-", "a~1^@": "^@",
		"~1": "before ~", "a~1x": "no step", "a^x": "no step", "a^{}x": "no step", "a~-1": "no step", "a^ 1": "no step",
		"x" + strings.Repeat("~", revision.StepsMax+1): "256 steps",
		strings.Repeat("x", revision.TextMax+1):        "2048 bytes",
	}
	for text, says := range tests {
		_, err := revision.Parse(text)
		if !errors.Is(err, revision.ErrInvalid) || errors.Is(err, revision.ErrNotFound) {
			t.Errorf("%.100q gives %v", text, err)
		} else if !strings.Contains(err.Error(), says) || !names(err, text) {
			t.Errorf("%.100q: %.500v: want it to name %q and the expression", text, err, says)
		}
	}
}

// TestParseMoment parses expressions with moments.
func TestParseMoment(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 8, 27, 21, 0, time.UTC)
	for text, want := range map[string]struct {
		base   string
		moment revision.Moment
		steps  bool
	}{
		"main@{seq:17}":                      {"main", revision.Moment{BySequence: true, Sequence: 17}, false},
		"@{seq:017}~1^2":                     {"", revision.Moment{BySequence: true, Sequence: 17}, true},
		"@@{seq:1}":                          {"@", revision.Moment{BySequence: true, Sequence: 1}, false},
		"a@b@{seq:1}":                        {"a@b", revision.Moment{BySequence: true, Sequence: 1}, false},
		"a@{seq:99999999999999999999}":       {"a", revision.Moment{BySequence: true, Sequence: math.MaxUint64, Digits: "99999999999999999999"}, false},
		"a/b@{2026-11-22T09:27:21+01:00}":    {"a/b", revision.Moment{Time: at}, false},
		"HEAD@{2026-11-22T08:27:21Z}^{}":     {"HEAD", revision.Moment{Time: at}, true},
		"x@{2026-11-22T08:27:21.000000001Z}": {"x", revision.Moment{Time: at.Add(1)}, false},
	} {
		e, err := revision.Parse(text)
		if err != nil || e.Base() != want.base || e.Moment() == nil || *e.Moment() != want.moment ||
			e.HasSteps() != want.steps || e.String() != text {
			t.Errorf("%s: base %q, moment %v, prints %q, %v", text, e.Base(), e.Moment(), e.String(), err)
		}
	}
}

// FuzzParse holds that a parsed expression prints back to the same text, and that a refusal names
// the expression.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"main", "main@{seq:17}~1", "main@{seq:18446744073709551616}", "@{2026-11-22T09:27:21.5+01:00}^", "HEAD~3^2^{}", "@^{commit}", "a..b", ":/x", "a@{u}", "a^{/x}", "v1^0~12", "a^@", "\xff~", "a~99999999999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := revision.Parse(text)
		if err != nil {
			if !errors.Is(err, revision.ErrInvalid) || !names(err, text) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		rest := strings.TrimPrefix(text, e.Base())
		if e.Moment() != nil {
			inside, behind, _ := strings.Cut(strings.TrimPrefix(rest, "@{"), "}")
			again, err := revision.ParseMoment(inside)
			if err != nil || again != *e.Moment() {
				t.Errorf("%q: moment %v, %v", text, e.Moment(), err)
			}
			if back, err := revision.ParseMoment(again.String()); err != nil || back != again {
				t.Errorf("%q: moment %v prints %q", text, again, again.String())
			}
			rest = behind
		} else if e.Base() == "" {
			t.Errorf("%q has no base", text)
		}
		if e.String() != text || !strings.HasPrefix(text, e.Base()) ||
			e.HasSteps() != (rest != "") || strings.ContainsAny(e.Base(), "~^:") {
			t.Errorf("%q: base %q, prints %q", text, e.Base(), e.String())
		}
	})
}

// names reports whether an error begins with the expression, or with the beginning of a long one.
func names(err error, text string) bool {
	return strings.HasPrefix(err.Error(), strings.TrimSuffix(fmt.Sprintf("%.200q", text), `"`))
}
