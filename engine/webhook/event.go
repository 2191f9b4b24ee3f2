package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"packhorse/refs"
)

// Event is the body of a push event, one for each ref that was changed.
type Event struct {
	Repository struct {
		ID  string `json:"id"`
		URL string `json:"url"` // its name, as in listings
	} `json:"repository"`
	Ref        string `json:"ref"`
	Before     string `json:"before"` // 40 zeros for a ref that was created
	After      string `json:"after"`  // 40 zeros for one that was deleted
	CustomerID string `json:"customer_id"`
	PushedAt   string `json:"pushed_at"`
}

// position is that of an event in the journal of its repository.
type position struct {
	Sequence uint64 `json:"sequence"`
	Index    uint32 `json:"index"`
}

func (p position) compare(other position) int {
	return cmp.Or(cmp.Compare(p.Sequence, other.Sequence), cmp.Compare(p.Index, other.Index))
}

// next is the position behind p.
func (p position) next() position { return position{p.Sequence, p.Index + 1} }

func newEvent(repo *Repository, entry *refs.Entry) Event {
	e := Event{
		Ref: entry.Ref, Before: entry.Before.String(), After: entry.After.String(),
		CustomerID: repo.Org, PushedAt: entry.Time.UTC().Format(time.RFC3339Nano),
	}
	e.Repository.ID, e.Repository.URL = repo.ID.String(), repo.Name
	return e
}

// time is that of the transaction; or, if it cannot be read, or is ahead of now, now.
func (e *Event) time(now time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, e.PushedAt); err == nil && at.Before(now) {
		return at
	}
	return now
}

// encode returns the body.
func (e *Event) encode() ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return body, nil
}

// DeliveryID identifies an event to receivers. It is the same in every attempt, so that they can
// discard duplicates.
func deliveryID(repo refs.RepoID, at position) string {
	return fmt.Sprintf("%s.%d.%d", repo, at.Sequence, at.Index)
}

// Sign returns the signature header of a body that is sent at a time: t=<unix>,sha256=<hex of
// HMAC-SHA256(secret, t + "." + body)>.
func Sign(secret string, at time.Time, body []byte) string {
	unix := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(unix + "."))
	mac.Write(body)
	return "t=" + unix + ",sha256=" + hex.EncodeToString(mac.Sum(nil))
}
