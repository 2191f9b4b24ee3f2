package engine

import "fmt"

// narrate turns counts into the lines that git prints on a terminal: a carriage return overwrites
// the line until it is done. A nil tell discards them.
func narrate(tell func(string)) func(phase string, done, total int64) {
	if tell == nil {
		return nil
	}
	return func(phase string, done, total int64) {
		switch {
		case total == 0:
			tell(fmt.Sprintf("%s: %d\r", phase, done))
		case done < total:
			tell(fmt.Sprintf("%s: %3d%% (%d/%d)\r", phase, done*100/total, done, total))
		default:
			tell(fmt.Sprintf("%s: 100%% (%d/%d), done.\n", phase, done, total))
		}
	}
}
