package bench_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// BenchmarkReadFiles reads the newest tree with POST /repos/files/read: the same contents as "tar"
// of BenchmarkArchive. The bytes are those of the answer, which is base64.
func BenchmarkReadFiles(b *testing.B) {
	host := openHost(b, false)
	openHistory(b).push(b, host, "r")
	door := rest.New(rest.Config{Host: host})
	grant := &auth.Grant{Org: enginetest.Org, Repo: "r", Scopes: auth.GitRead}
	for name, body := range map[string]string{"whole": "{}", "sizes": `{"max_bytes_per_file":1}`} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				x := &unheld{Exchange: exchangetest.New(http.MethodPost, "/", strings.NewReader(body))}
				if err := door.FilesRead(x, grant); err != nil {
					b.Fatal(err)
				}
				var size counter
				if err := x.write(b.Context(), &size); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(size))
			}
		})
	}
}

// unheld is an exchange whose answer is not gathered.
type unheld struct {
	*exchangetest.Exchange
	write func(ctx context.Context, w io.Writer) error
}

func (x *unheld) Stream(_ int, _ string, write func(ctx context.Context, w io.Writer) error) {
	x.write = write
}
