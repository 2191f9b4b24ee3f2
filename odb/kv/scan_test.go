package kv_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"packhorse/odb/kv"
)

// alphabet reads a store of the keys "\x00" to "\xff" in pages of at most pageMax pairs; asked
// records the limits of the pages.
func alphabet(pageMax int, asked *[]int) func(kv.ScanOptions) (kv.Page, error) {
	var reused []kv.Pair
	return func(options kv.ScanOptions) (kv.Page, error) {
		*asked = append(*asked, options.Limit)
		reused = reused[:0]
		more := false
		for i := range 256 {
			key := []byte{byte(i)}
			if options.Reverse {
				key[0] = byte(255 - i)
			}
			if bytes.Compare(key, options.Start) < 0 || len(options.End) > 0 && bytes.Compare(key, options.End) >= 0 {
				continue
			}
			if more = len(reused) == min(options.Limit, pageMax); more {
				break
			}
			reused = append(reused, kv.Pair{Key: key, Value: key})
		}
		return kv.Page{Pairs: reused, More: more}, nil
	}
}

func TestScanPages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options     kv.ScanOptions
		pageMax     int
		first, last byte
		count       int
		asked       []int
	}{
		"all":      {pageMax: 1000, first: 0, last: 255, count: 256, asked: []int{16, 32, 64, 128, 256}},
		"reverse":  {options: kv.ScanOptions{Reverse: true}, pageMax: 1000, first: 255, last: 0, count: 256, asked: []int{16, 32, 64, 128, 256}},
		"limit":    {options: kv.ScanOptions{Limit: 40}, pageMax: 1000, first: 0, last: 39, count: 40, asked: []int{16, 24}},
		"one page": {options: kv.ScanOptions{End: []byte{16}}, pageMax: 1000, first: 0, last: 15, count: 16, asked: []int{16}},
		"small pages": {
			options: kv.ScanOptions{Start: []byte{10}, End: []byte{17}}, pageMax: 3, first: 10, last: 16, count: 7,
			asked: []int{16, 32, 64},
		},
		"small pages in reverse": {
			options: kv.ScanOptions{Start: []byte{10}, End: []byte{17}, Reverse: true, Limit: 5},
			pageMax: 3, first: 16, last: 12, count: 5, asked: []int{5, 2},
		},
		"empty": {options: kv.ScanOptions{Start: []byte{1, 0}, End: []byte{2}}, pageMax: 3, asked: []int{16}},
		"wrong": {options: kv.ScanOptions{Start: []byte{2}, End: []byte{2}}, pageMax: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			var asked []int
			for pair, err := range kv.ScanPages(test.options, alphabet(test.pageMax, &asked)) {
				if err != nil || !bytes.Equal(pair.Key, pair.Value) {
					t.Fatal(pair, err)
				}
				got = append(got, pair.Key...)
			}
			if len(got) != test.count || test.count > 0 && (got[0] != test.first || got[len(got)-1] != test.last) {
				t.Errorf("got %x", got)
			}
			if !slices.Equal(asked, test.asked) {
				t.Errorf("pages of %d, want %d", asked, test.asked)
			}
		})
	}
}

func TestScanPagesEnds(t *testing.T) {
	t.Parallel()
	var asked []int
	pages := alphabet(1000, &asked)
	for pair, err := range kv.ScanPages(kv.ScanOptions{}, pages) {
		if err != nil || pair.Key[0] == 20 {
			break
		}
	}
	if !slices.Equal(asked, []int{16, 32}) {
		t.Errorf("a walk that ended at the 21st pair read pages of %d", asked)
	}
	failure := errors.New("the second page fails")
	count := 0
	var last error
	for _, err := range kv.ScanPages(kv.ScanOptions{}, func(options kv.ScanOptions) (kv.Page, error) {
		if len(options.Start) > 0 {
			return kv.Page{}, failure
		}
		return pages(options)
	}) {
		count++
		last = err
	}
	if count != 17 || !errors.Is(last, failure) {
		t.Errorf("%d steps, %v", count, last)
	}
}
