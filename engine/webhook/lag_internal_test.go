package webhook

import (
	"testing"
	"time"
)

// While nobody measures a lag it stays for two minutes, and grows from then on.
func TestGrown(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct{ lag, later, want time.Duration }{
		{0, time.Hour, 0},
		{time.Second, 0, time.Second},
		{time.Second, 2 * time.Minute, time.Second},
		{time.Second, time.Hour, 58*time.Minute + time.Second},
		{time.Second, -time.Minute, time.Second},
	} {
		measured := laneLag{at: at}
		if got := measured.grown(test.lag, at.Add(test.later)); got != test.want {
			t.Errorf("%v after %v: %v, want %v", test.lag, test.later, got, test.want)
		}
	}
}
