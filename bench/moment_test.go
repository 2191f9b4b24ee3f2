package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/refs"
)

// BenchmarkMoment makes reads as requests do, each now and at a moment before a thousand
// transactions that moved another branch, in turns. "ratio" is the median time of the second by
// that of the first; half of an operation is each.
func BenchmarkMoment(b *testing.B) {
	ctx := context.Background()
	host := openHost(b, false)
	history := openHistory(b)
	repo := history.push(b, host, "r")
	if _, err := repo.CreateTag(ctx, bencher, refs.Main, "v1", engine.CommitName{Text: "main~1"}); err != nil {
		b.Fatal(err)
	}
	settle(b, host)
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
		"tags": func(repo *engine.Repository, _ int) error {
			_, err := repo.Tags(ctx, refs.Main, "", 20)
			return err
		},
		"diff": func(repo *engine.Repository, i int) error {
			name := engine.CommitName{Text: fmt.Sprint("main~", i%50)}
			d, err := repo.CommitDiff(ctx, engine.CommitDiffRequest{Commit: name}, free{})
			if err != nil {
				return err
			}
			for _, err := range d.Files(func() error { return nil }) {
				if err != nil {
					return err
				}
			}
			return d.Close()
		},
		"blame": func(repo *engine.Repository, _ int) error {
			blame, err := repo.Blame(ctx, engine.BlameRequest{Path: history.busiest})
			if err != nil {
				return err
			}
			for _, err := range blame.Lines(ctx) {
				if err != nil {
					return err
				}
			}
			return blame.Close()
		},
		"grep": func(repo *engine.Repository, _ int) error {
			_, err := repo.Grep(ctx, engine.GrepRequest{Pattern: "packhorses?[0-9]"})
			return err
		},
		"archive": func(repo *engine.Repository, _ int) error {
			a, err := repo.Archive(ctx, engine.ArchiveRequest{})
			if err != nil {
				return err
			}
			return errors.Join(a.WriteTar(ctx, io.Discard), a.Close())
		},
		"metadata": func(repo *engine.Repository, _ int) error {
			list, err := repo.Metadata(ctx, engine.MetadataRequest{})
			if err != nil {
				return err
			}
			for _, err := range list.Commits(ctx) {
				if err != nil {
					return err
				}
			}
			return list.Close()
		},
		"clone": func(repo *engine.Repository, _ int) error {
			names, err := repo.Advertise(ctx, refs.Main)
			if err != nil {
				return err
			}
			for _, err := range names.All(ctx, "") {
				if err != nil {
					return err
				}
			}
			f, err := repo.Fetch(ctx, engine.FetchRequest{Wants: []object.ID{history.tip}, OFSDelta: true})
			if err != nil {
				return errors.Join(err, names.Close())
			}
			defer f.Close()
			return errors.Join(f.Send(ctx, io.Discard, engine.SendOptions{}), names.Close())
		},
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
