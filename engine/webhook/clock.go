package webhook

import "time"

// Clock is the current time, with timers.
type Clock interface {
	Now() time.Time
	// At returns a channel that can be received from once at is not in the future; stop ends what that
	// costs.
	At(at time.Time) (due <-chan time.Time, stop func())
}

type systemClock struct{}

// Now implements [Clock].
func (systemClock) Now() time.Time { return time.Now() }

// At implements [Clock].
func (systemClock) At(at time.Time) (due <-chan time.Time, stop func()) {
	timer := time.NewTimer(time.Until(at))
	return timer.C, func() { timer.Stop() }
}
