package packgen_test

import (
	"errors"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb/packgen"
)

func TestParseFilterAgainstGit(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 1, Commits: 2})
	for _, spec := range []string{
		"blob:none", "blob:limit=0", "blob:limit=10", "blob:limit=1k", "blob:limit=2M", "blob:limit=3g", "blob:limit=0x10",
		"blob:limit=010",
		"blob:limit= 7", "blob:limit=+7", "tree:0", "tree:18446744073709551615", "object:type=commit", "object:type=tag",
		"object:type=tree", "object:type=blob", "combine:blob:none", "combine:blob:none+tree:1",
		"combine:combine:blob%3anone+tree%3a1",
		"combine:tree%3A3+blob%3Alimit%3D1k",

		"", "blob", "blob:", "blob:nothing", "blob:limit=", "blob:limit=k", "blob:limit=-1", "blob:limit=1kk",
		"blob:limit=1t",
		"blob:limit=18446744073709551616", "blob:limit=99999999999g", "blob:limit=08", "blob:limit=0x", "tree:", "tree:-1",
		"tree:x",
		"tree:1 ", "object:type=", "object:type=commits", "object:type=Blob", "combine:", "combine:+", "combine:+blob:none",
		"combine:blob:none+", "combine:blob:none++tree:1", "combine:blob:none+tree:x", "combine:blob:limit=10,tree:1",
		"combine:tree:1 ",
		"combine:tree:1+x;y", "combine:blob%3Anone%2", "combine:blob%00none", "combine:blob%zznone", "combine:%",
		"sparse:path=x", "nonsense=1",
	} {
		_, err := packgen.ParseFilter(spec)
		_, gitErr := git.Try(nil, "rev-list", "--objects", "--filter="+spec, tip)
		var exit *oracle.ExitError
		switch {
		case errors.As(gitErr, &exit):
			want := strings.TrimSuffix(strings.TrimPrefix(exit.Stderr, "fatal: "), "\n")
			var refused *packgen.FilterError
			if !errors.As(err, &refused) || err.Error() != want {
				t.Errorf("filter %q: %v, git says %q", spec, err, want)
			}
		case err != nil:
			t.Errorf("filter %q: %v, git takes it", spec, err)
		}
	}
}

func TestParseFilterRefusesSparse(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"sparse:oid=main:filter", "combine:blob:none+sparse:oid=main:filter"} {
		if _, err := packgen.ParseFilter(spec); err == nil || err.Error() != "filter 'sparse:oid' not supported" {
			t.Errorf("filter %q: %v", spec, err)
		}
	}
}

func TestFilterString(t *testing.T) {
	t.Parallel()
	var none packgen.Filter
	if !none.IsZero() || none.String() != "" {
		t.Errorf("the zero filter is %q", none)
	}
	f, err := packgen.ParseFilter("combine:blob:none+tree:1")
	if err != nil || f.IsZero() || f.String() != "combine:blob:none+tree:1" {
		t.Errorf("filter %q, %v", f, err)
	}
}
