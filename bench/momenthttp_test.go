package bench_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkMomentOverHTTP sends the cheapest reads of BenchmarkMoment to a server on the loopback,
// each now and at a moment before 200 transactions that moved another branch, in turns. "ratio" is
// the median time of the second by that of the first; half of an operation is each. Run it with
// -benchtime 2000x.
func BenchmarkMomentOverHTTP(b *testing.B) {
	p, stop := startServer(b)
	defer closeStore(b, stop)
	paths := make([]string, 200)
	for i := range paths {
		paths[i] = fmt.Sprintf("d%02d/f%03d", i%20, i)
	}
	p.commit("main", "", paths)
	p.commit("main", "", paths[:5])
	sequence := p.post("/tags", "application/json", `{"name":"v1","ref":"main~1"}`).Get("X-Repo-Sequence")
	for i := range 200 {
		p.post("/branches/create", "application/json",
			fmt.Sprintf(`{"target_branch":"moving","base_ref":%q,"force":true}`, []string{"main", "main~1"}[i%2]))
	}
	for _, read := range []string{"/tags?limit=20", "/branches?limit=20", "/file?path=d00/f000", "/files?limit=1000", "/commits?limit=20"} {
		b.Run(read[1:], func(b *testing.B) {
			var spent [2][]time.Duration
			i := 0
			for b.Loop() {
				for turn := range 2 {
					k := (i + turn) % 2
					asked := read
					if k == 1 {
						asked += "&at=seq:" + sequence
					}
					began := time.Now()
					p.send(http.MethodGet, asked, "application/json", "")
					spent[k] = append(spent[k], time.Since(began))
				}
				i++
			}
			for k := range spent {
				slices.Sort(spent[k])
			}
			b.ReportMetric(float64(spent[1][i/2])/float64(spent[0][i/2]), "ratio")
		})
	}
}
