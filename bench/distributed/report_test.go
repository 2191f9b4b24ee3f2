package distributed_test

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// row is a line of the table.
type row struct {
	job                   string
	embedded, distributed float64
	unit                  string           // of the two and of the bound
	must                  string           // as a formula
	bound                 float64          // its value on this machine; 0 for none
	atLeast               bool             // the bound is a minimum
	trips                 float64          // to the database, of one operation; negative for not counted
	cpu                   [2]time.Duration // of the server, for one operation; zero for not counted
}

// milliseconds is a duration as a figure.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r row) verdict() string {
	switch {
	case r.bound == 0:
		return ""
	case (r.distributed >= r.bound) == r.atLeast || r.distributed == r.bound:
		return "met"
	default:
		return "missed"
	}
}

// number returns a figure with three digits.
func number(value float64) string {
	switch {
	case value == 0:
		return "-"
	case value < 9.995:
		return fmt.Sprintf("%.2f", value)
	case value < 99.95:
		return fmt.Sprintf("%.1f", value)
	default:
		return fmt.Sprintf("%.0f", value)
	}
}

// report prints the rows as a table.
func report(w io.Writer, n network, rows []row) error {
	if _, err := fmt.Fprintf(w, "T %s ms, S %s ms, G %s ms, P %s ms; the network to the bucket brings %.0f MB/s\n\n",
		number(milliseconds(n.trip)), number(milliseconds(n.flush)), number(milliseconds(n.get)),
		number(milliseconds(n.put)), n.getRate/1e6); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(table, "| job\t| unit\t| embedded\t| distributed\t| ratio\t| trips\t| CPU\t| must\t| bound\t| \t|") // Flush tells
	_, _ = fmt.Fprintln(table, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		ratio, trips, cpu := "-", "-", "-"
		if r.embedded > 0 {
			ratio = number(r.distributed / r.embedded)
		}
		if r.trips >= 0 {
			trips = number(r.trips)
		}
		if r.cpu[1] > 0 {
			cpu = number(milliseconds(r.cpu[0])) + " " + number(milliseconds(r.cpu[1]))
		}
		_, _ = fmt.Fprintf(table, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", r.job, r.unit,
			number(r.embedded), number(r.distributed), ratio, trips, cpu, r.must, number(r.bound), r.verdict())
	}
	return table.Flush()
}
