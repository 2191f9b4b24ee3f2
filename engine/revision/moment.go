package revision

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Moment names a state that a repository was in: by a position of its journal, or by a time.
type Moment struct {
	// BySequence says that the moment is Sequence; otherwise it is Time.
	BySequence bool
	Sequence   uint64
	// Digits are those of a position that is larger than any, which Sequence stands for.
	Digits string
	Time   time.Time
}

// Moments describes the texts of moments.
const Moments = "a time of RFC 3339, such as 2026-11-22T09:27:21Z, or seq:N, a position in the journal"

// ParseMoment reads "seq:N" or a time of RFC 3339. A position that is larger than any counts as the
// largest. The error says what was expected.
func ParseMoment(text string) (Moment, error) {
	if digits, ok := strings.CutPrefix(text, "seq:"); ok {
		n, err := strconv.ParseUint(digits, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return Moment{BySequence: true, Sequence: math.MaxUint64, Digits: digits}, nil
		case err != nil:
			return Moment{}, notMoment(text)
		}
		return Moment{BySequence: true, Sequence: n}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Moment{}, notMoment(text)
	}
	return Moment{Time: at.UTC()}, nil
}

func notMoment(text string) error { return fmt.Errorf("expected %s, got %.60q", Moments, text) }

// String returns a text that parses to the moment.
func (m Moment) String() string {
	if m.Digits != "" {
		return "seq:" + m.Digits
	}
	if m.BySequence {
		return "seq:" + strconv.FormatUint(m.Sequence, 10)
	}
	return m.Time.Format(time.RFC3339Nano)
}
