package rest_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// TestRepositoryQuota makes many creations race for an organization's quota: it is never exceeded,
// and all of it can be used.
func TestRepositoryQuota(t *testing.T) {
	t.Parallel()
	const most = 5
	host := enginetest.Open(t)
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host, OrgConfig: func(string) (*auth.OrgConfig, bool) {
		return &auth.OrgConfig{Limits: auth.OrgLimits{Repositories: most}}, true
	}})
	count := func() int {
		var page struct{ Repos []repository }
		c.call(c.door.Repositories, http.MethodGet, "/?limit=100", nil).want(http.StatusOK).decode(&page)
		return len(page.Repos)
	}
	var creating sync.WaitGroup
	statuses := make([]int, 4*most)
	for i := range statuses {
		creating.Go(func() { statuses[i] = c.as(fmt.Sprint("n", i)).create("").Status })
	}
	creating.Wait()
	made := map[int]int{}
	for _, status := range statuses {
		made[status]++
	}
	if made[http.StatusCreated] != most || made[http.StatusForbidden] != len(statuses)-most || count() != most {
		t.Errorf("statuses %v, %d repositories", made, count())
	}
	says := fmt.Sprintf(`organization "acme" may have %d repositories`, most)
	for _, body := range []string{``, `{"base_repo":{"provider":"gitlab","owner":"o","name":"n"}}`} {
		c.as("more").create(body).refused(http.StatusForbidden, says)
	}

	// One that is deleted makes room; a name that is taken is said to be so.
	var names []string
	for i, status := range statuses {
		if status == http.StatusCreated {
			names = append(names, fmt.Sprint("n", i))
		}
	}
	c.as(names[0]).create("").refused(http.StatusConflict, "exists")
	if _, err := host.DeleteRepository(t.Context(), engine.Actor{Org: enginetest.Org}, names[0]); err != nil {
		t.Fatal(err)
	}
	c.as("again").create("").want(http.StatusCreated)
	c.as(names[0]).create("").refused(http.StatusForbidden, says)
}
