package object_test

import (
	"testing"
	"time"

	"packhorse/pack/object"
)

func TestParseSignature(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want object.Signature
		ok   bool
	}{
		"plain": {
			"A U Thor <a@b> 12 +0100", object.Signature{Name: "A U Thor", Email: "a@b", Seconds: 12, Zone: "+0100"}, true,
		},
		"no name":        {"<a@b> 12 +0100", object.Signature{Email: "a@b", Seconds: 12, Zone: "+0100"}, true},
		"no date":        {"A <a@b>", object.Signature{Name: "A", Email: "a@b"}, true},
		"date overflows": {"A <a@b> 9223372036854775808 +0000", object.Signature{Name: "A", Email: "a@b"}, true},
		"date behind": {
			"A <a@b> junk> 5 -0800", object.Signature{Name: "A", Email: "a@b", Seconds: 5, Zone: "-0800"}, true,
		},
		"spaces in email": {
			"A < a b > 1 +0000", object.Signature{Name: "A", Email: " a b ", Seconds: 1, Zone: "+0000"}, true,
		},
		"no email":   {"A U Thor", object.Signature{}, false},
		"email open": {"A <a@b 12 +0100", object.Signature{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := object.ParseSignature(test.line)
			if got != test.want || ok != test.ok {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
}

func TestSignatureTime(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{
		"+0000": "2009-02-13T23:31:30Z", "+0530": "2009-02-14T05:01:30+05:30", "-0730": "2009-02-13T16:01:30-07:30",
		"": "2009-02-13T23:31:30Z", "-7": "2009-02-13T23:24:30-00:07", "+051800": "2009-02-13T23:31:30Z",
		"UTC": "2009-02-13T23:31:30Z",
	} {
		s := object.Signature{Seconds: 1234567890, Zone: zone}
		if got := s.Time().Format(time.RFC3339); got != want {
			t.Errorf("zone %q: %s, want %s", zone, got, want)
		}
	}
}
