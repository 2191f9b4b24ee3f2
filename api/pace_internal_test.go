package api

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waits []time.Duration
		moved int
		fast  bool
	}{
		"fast":                         {[]time.Duration{time.Second, 59 * time.Second}, 30 << 10, true},
		"one byte a minute":            {[]time.Duration{60 * time.Second}, 1, false},
		"slow, but not waited for":     {[]time.Duration{time.Millisecond, time.Millisecond}, 1, true},
		"just below":                   {[]time.Duration{60 * time.Second}, 60<<10 - 1, false},
		"just at it":                   {[]time.Duration{60 * time.Second}, 60 << 10, true},
		"a long wait after a fast one": {[]time.Duration{60 * time.Second, 60 * time.Second}, 60 << 10, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{window: time.Minute, rate: 1 << 10}
			fast := true
			for _, wait := range test.waits {
				fast = p.add(wait, test.moved) && fast
			}
			if fast != test.fast {
				t.Errorf("keeps pace: %t", fast)
			}
		})
	}
}
