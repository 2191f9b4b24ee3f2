package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAllowEmpty commits content that exists already.
func TestAllowEmpty(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	first := c.commit("main", "a.txt", "1")
	pack := func(branch, more, content string) answer {
		fields := fmt.Sprintf(`"target_branch":%q,"commit_message":"m",%s,"files":[{"path":"a.txt","content_id":"1"}]%s`,
			branch, author, more)
		return c.commitPack(newPack(fields).chunk("1", content, true))
	}
	var told committed
	same := pack("main", `,"allow_empty":false`, "1").want(http.StatusOK)
	same.decode(&told)
	if told.Result.Status != "no_op" || !told.Result.Success || told.Result.NewSHA != first.Commit.SHA ||
		told.Result.OldSHA != first.Commit.SHA ||
		told.Commit.SHA != first.Commit.SHA || told.Commit.Tree != first.Commit.Tree || told.Commit.PackBytes != 0 {
		t.Errorf("nothing to commit: %+v", told)
	}
	if got := same.Header.Get("X-Repo-Sequence"); got != "2" {
		t.Errorf("X-Repo-Sequence is %q, want 2", got)
	}
	pack("main", `,"allow_empty":false,"expected_head_sha":"`+strings.Repeat("1", 40)+`"`, "1").
		refused(http.StatusConflict, "expected")

	// A new branch is created, at its base.
	pack("next", `,"allow_empty":false,"base_branch":"main"`, "1").want(http.StatusCreated).decode(&told)
	if told.Result.Status != "ok" || told.Result.NewSHA != first.Commit.SHA ||
		told.Result.OldSHA != strings.Repeat("0", 40) {
		t.Errorf("a new branch without a change: %+v", told)
	}

	// Real changes are committed, and by default so is everything.
	for _, more := range []string{`,"allow_empty":false`, ``, `,"allow_empty":true`} {
		before := told.Result.NewSHA
		pack("main", more, "2").want(http.StatusCreated).decode(&told)
		if told.Result.NewSHA == before || told.Result.Status != "ok" {
			t.Errorf("with %q: %+v", more, told)
		}
	}
}
