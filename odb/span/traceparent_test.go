package span_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"packhorse/odb/span"
)

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + trace + "-b7ad6b7169203331-01"
)

// The cases are those of the test suite of W3C Trace Context.
func TestParse(t *testing.T) {
	t.Parallel()
	list := func(count int) string {
		var members []string
		for i := range count {
			members = append(members, fmt.Sprintf("k%d=v", i))
		}
		return strings.Join(members, ",")
	}
	tests := map[string]struct {
		parents, states []string
		want            string // the traceparent that is passed on; "" for none
		state           string
	}{
		"sampled":             {parents: []string{parent}, want: parent},
		"not sampled":         {parents: []string{parent[:53] + "00"}, want: parent[:53] + "00"},
		"unknown flags":       {parents: []string{parent[:53] + "ff"}, want: parent},
		"other flags":         {parents: []string{parent[:53] + "fe"}, want: parent[:53] + "00"},
		"later version":       {parents: []string{"cc" + parent[2:]}, want: parent},
		"more of it":          {parents: []string{"cc" + parent[2:] + "-what-the-future-brings"}, want: parent},
		"none":                {},
		"empty":               {parents: []string{""}},
		"two":                 {parents: []string{parent, parent}},
		"version ff":          {parents: []string{"ff" + parent[2:]}},
		"more of version 00":  {parents: []string{parent + "-more"}},
		"no dash behind":      {parents: []string{"cc" + parent[2:] + ".more"}},
		"short":               {parents: []string{parent[:54]}},
		"upper case":          {parents: []string{strings.ToUpper(parent)}},
		"no digits":           {parents: []string{"00-" + strings.Repeat("x", 32) + parent[35:]}},
		"underscores":         {parents: []string{strings.ReplaceAll(parent, "-", "_")}},
		"zero trace":          {parents: []string{"00-" + strings.Repeat("0", 32) + parent[35:]}},
		"zero span":           {parents: []string{parent[:36] + strings.Repeat("0", 16) + parent[52:]}},
		"state":               {[]string{parent}, []string{"rojo=00f067aa0ba902b7, t61rc@other=a b"}, parent, "rojo=00f067aa0ba902b7,t61rc@other=a b"},
		"several states":      {[]string{parent}, []string{"a=1", "", "b=2, ,c=3"}, parent, "a=1,b=2,c=3"},
		"a tenant of digits":  {[]string{parent}, []string{"0t@system=1"}, parent, "0t@system=1"},
		"state without trace": {nil, []string{"a=1"}, "", ""},
		"malformed state":     {[]string{parent}, []string{"a=1,b"}, parent, ""},
		"a key of digits":     {[]string{parent}, []string{"0a=1"}, parent, ""},
		"a system of digits":  {[]string{parent}, []string{"a@0=1"}, parent, ""},
		"two ats":             {[]string{parent}, []string{"a@b@c=1"}, parent, ""},
		"upper case key":      {[]string{parent}, []string{"A=1"}, parent, ""},
		"no value":            {[]string{parent}, []string{"a="}, parent, ""},
		"equals in a value":   {[]string{parent}, []string{"a=b=c"}, parent, ""},
		"a key twice":         {[]string{parent}, []string{"a=1,a=2"}, parent, ""},
		"many members":        {[]string{parent}, []string{list(32)}, parent, list(32)},
		"too many members":    {[]string{parent}, []string{list(33)}, parent, ""},
		"long":                {[]string{parent}, []string{"a=" + strings.Repeat("x", 255), "b=" + strings.Repeat("x", 255)}, parent, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := span.Parse(test.parents, test.states)
			if got.String() != test.want || got.State != test.state {
				t.Errorf("got %q and %q, want %q and %q", got.String(), got.State, test.want, test.state)
			}
			if got.IsValid() && (!got.Remote || got.TraceID() != trace) || !got.IsValid() && got != (span.Link{}) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// What is accepted has the form of the standard, is passed on in that of version 00, and is then
// accepted again as the same.
func FuzzParse(f *testing.F) {
	form := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)
	f.Add(parent, "a=1,b@c=2")
	f.Add("cc"+parent[2:]+"-x", " a=1 ,")
	f.Add("00-"+trace, "=")
	f.Fuzz(func(t *testing.T, text, state string) {
		l := span.Parse([]string{text}, []string{state})
		if !l.IsValid() {
			if l != (span.Link{}) {
				t.Fatalf("%q: neither valid nor zero: %+v", text, l)
			}
			return
		}
		if !form.MatchString(strings.ReplaceAll(text, "\n", " ")) {
			t.Fatalf("accepted %q", text)
		}
		if again := span.Parse([]string{l.String()}, []string{l.State}); again != l {
			t.Fatalf("%q, %q: %+v, and again %+v", text, state, l, again)
		}
	})
}

func TestCarry(t *testing.T) {
	t.Parallel()
	carry := func(ctx context.Context) map[string]string {
		sent := make(map[string]string)
		span.Carry(ctx, func(name, value string) { sent[name] = value })
		return sent
	}
	if sent := carry(t.Context()); len(sent) != 0 {
		t.Errorf("without a trace: %v", sent)
	}
	ctx := span.With(t.Context(), nil, span.Parse([]string{parent}, []string{"a=1"}))
	want := map[string]string{"Traceparent": parent, "Tracestate": "a=1"}
	if sent := carry(ctx); !maps.Equal(sent, want) {
		t.Errorf("sent %v", sent)
	}
	if sent := carry(span.Move(t.Context(), ctx)); !maps.Equal(sent, want) {
		t.Errorf("moved: %v", sent)
	}
	begun, none := span.Begin(ctx, "x") // there is no tracer
	none.Text("a", "b")
	none.End(nil)
	if none != nil || !maps.Equal(carry(begun), want) {
		t.Errorf("%v, %v", none, carry(begun))
	}
}

// Without a tracer a span costs no memory.
func TestNoCost(t *testing.T) {
	ctx := span.With(t.Context(), nil, span.Parse([]string{parent}, nil))
	for name, ctx := range map[string]context.Context{"no trace": t.Context(), "a trace": ctx} {
		if allocations := testing.AllocsPerRun(100, func() {
			_, s := span.Begin(ctx, "x")
			s.Text("a", "b")
			s.Count("c", 1)
			s.End(nil)
		}); allocations != 0 {
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}
