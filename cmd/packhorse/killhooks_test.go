package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// TestKillWebhooks kills the server at random instants while programs commit, git pushes and a
// receiver gets the events, some of which it refuses in long runs: each event of the journal
// arrives, none is invented, and the first deliveries of each ref are in its order.
// PACKHORSE_KILL_ROUNDS sets the number of kills.
func TestKillWebhooks(t *testing.T) {
	t.Parallel()
	eachStore(t, testKillWebhooks)
}

func testKillWebhooks(t *testing.T, stores *sharedStores) {
	t.Helper()
	rounds := killRounds(t, 4)
	k := newKilling(t, stores, 4, uint64(rounds))
	k.flags = []string{"--upstream-allow", "127.0.0.1", "--log-level", "error"}
	receiver := newReceiver(t, k.dir)
	if rounds > 20 {
		receiver.refuse = rand.New(rand.NewPCG(3, uint64(rounds)))
	}
	k.start()
	k.api(http.MethodPost, "/api/v1/repos", "", nil).mustBe(t, http.StatusCreated)
	k.commit("main", "seed", "seed").mustBe(t, http.StatusCreated)
	for w := range 3 {
		k.writers = append(k.writers, &keyedWriter{branch: fmt.Sprintf("api%d", w)})
	}
	for w := range 2 {
		k.pushers = append(k.pushers, newPusher(t, fmt.Sprintf("git%d", w)))
	}
	for range rounds {
		k.crash()
	}
	k.look() // all acknowledged writes exist, and so they are in the journal
	journal := receiver.await(k.data(), k.get)
	k.stop()
	receiver.check(journal)
}
