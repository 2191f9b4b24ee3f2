package bench_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"packhorse/engine"
)

// BenchmarkMoment makes reads as requests do, each now and at a moment before a thousand
// transactions that moved another branch, in turns. "ratio" is the median time of the second by
// that of the first; half of an operation is each.
func BenchmarkMoment(b *testing.B) {
	ctx := context.Background()
	host := openHost(b, false)
	repo := openHistory(b).push(b, host, "r")
	files := allFiles(b, repo)
	sequence, err := repo.Sequence(ctx)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		base := engine.CommitName{Text: []string{"main", "main~1"}[i%2]}
		if _, err := repo.CreateBranch(ctx, bencher,
			engine.CreateBranchRequest{Branch: "moving", Base: base, Force: true}); err != nil {
			b.Fatal(err)
		}
	}
	reads := map[string]func(repo *engine.Repository, i int) error{
		"branches": func(repo *engine.Repository, _ int) error {
			_, err := repo.Branches(ctx, 0, "", 20)
			return err
		},
		"commits": func(repo *engine.Repository, _ int) error {
			page, err := repo.Commits(ctx, engine.CommitsRequest{Limit: 20})
			if err != nil {
				return err
			}
			return page.Close()
		},
		"file": func(repo *engine.Repository, i int) error {
			f, err := repo.File(ctx, engine.FileRequest{Path: files[i%len(files)].Path})
			if err != nil {
				return err
			}
			content, err := f.Content(ctx)
			if err != nil {
				return err
			}
			if _, err := content.WriteTo(io.Discard); err != nil {
				return err
			}
			closeStore(b, content.Close)
			return f.Close()
		},
		"files": func(repo *engine.Repository, _ int) error {
			list, err := repo.Files(ctx, engine.FilesRequest{})
			if err != nil {
				return err
			}
			for _, err := range list.All(ctx) {
				if err != nil {
					return err
				}
			}
			return list.Close()
		},
	}
	for name, read := range reads {
		b.Run(name, func(b *testing.B) {
			var spent [2][]time.Duration
			i := 0
			for b.Loop() {
				for turn := range 2 {
					k := (i + turn) % 2
					began := time.Now()
					repo, err := host.Repository(ctx, bencher.Org, "r")
					if err == nil && k == 1 {
						repo, err = repo.At(ctx, engine.Moment{BySequence: true, Sequence: sequence})
					}
					if err == nil {
						err = read(repo, i)
					}
					if err != nil {
						b.Fatal(err)
					}
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
