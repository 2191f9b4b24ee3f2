package space

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size formats a number of bytes for people: "812 MiB", "1.2 GiB".
func Size(bytes uint64) string {
	const units = "KMGTPE"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	unit, scaled := 0, float64(bytes)/(1<<10)
	for ; scaled >= 1<<10 && unit < len(units)-1; unit++ {
		scaled /= 1 << 10
	}
	number := strings.TrimSuffix(strconv.FormatFloat(scaled, 'f', 1, 64), ".0")
	return number + " " + units[unit:unit+1] + "iB"
}

// ParseSize reads a number of bytes as in "512MiB" or "4294967296". Units are powers of 1,024.
func ParseSize(text string) (int64, error) {
	number, unit := text, int64(1)
	for i, name := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(text, name); ok {
			number, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size: expected a number of bytes, or with KiB, MiB or GiB", text)
	}
	return n * unit, nil
}
