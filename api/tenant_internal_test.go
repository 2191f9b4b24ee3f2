package api

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/odb/fair"
)

// Requests that create repositories share what one repository gets, whatever names their tokens
// bring: a repository beside 16 clients, each of which creates one after the other, gets half of
// the processor.
func TestCreationsShareARepository(t *testing.T) {
	t.Parallel()
	routes := Routes(rest.New(rest.Config{}))
	tenantOf := func(method, path, repo string) fair.Tenant {
		for _, route := range routes {
			if route.Method == method && route.Path == path {
				x := &transfer{endpoint: &endpoint{Route: route}, grant: &auth.Grant{Org: "acme", Repo: repo, Subject: "s"}}
				return x.tenant()
			}
		}
		t.Errorf("no route %s %s", method, path)
		return fair.Tenant{}
	}
	synctest.Test(t, func(t *testing.T) {
		processors := fair.NewProcessors(1)
		until := time.Now().Add(time.Second)
		var mu sync.Mutex // guards took
		took := make(map[bool]time.Duration)
		var all sync.WaitGroup
		for client := range 18 {
			all.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					creates := client > 1
					tenant := tenantOf(http.MethodGet, "/api/v1/repos/file", "site")
					if creates {
						tenant = tenantOf(http.MethodPost, "/api/v1/repos", fmt.Sprintf("fork-%d-%d", client, n))
					}
					account := processors.Account(tenant, 0)
					if err := account.Begin(t.Context(), true, 0); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
					account.End()
					mu.Lock()
					took[creates] += time.Millisecond
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if took[false] < took[true]*9/10 {
			t.Errorf("creations took %v, the repository %v", took[true], took[false])
		}
	})
}
