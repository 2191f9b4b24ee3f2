package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// traced is an error that prints its origin with the verb %+v, as those of Pebble do.
type traced struct{}

func (traced) Error() string { return "disk is gone" }

func (traced) Format(s fmt.State, _ rune) {
	if s.Flag('+') {
		_, _ = fmt.Fprint(s, "disk is gone\nmain.go:17\nattached stack trace")
		return
	}
	_, _ = fmt.Fprint(s, "disk is gone")
}

// Text shows durations and sizes with their units and errors without their origin; JSON names the
// units.
func TestLogFormats(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"text": {" took=1.5s ", " memory=16GiB ", ` error="disk is gone"`},
		"json": {`"took_seconds":1.5,`, `"memory_bytes":17179869184,`, `"error":"disk is gone"`},
	}
	for format, want := range tests {
		var out bytes.Buffer
		logFlags{LogFormat: format}.logger(&out).Info("m", "took", 1500*time.Millisecond, "memory", byteSize(16<<30), "error",
			traced{})
		for _, part := range want {
			if !strings.Contains(out.String(), part) || strings.Contains(out.String(), "stack") {
				t.Errorf("%s: %s lacks %q", format, out.String(), part)
			}
		}
	}
}
