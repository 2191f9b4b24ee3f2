// Package problem translates errors for clients: every kind of error that a lower floor exports has
// one row in its table, with the HTTP status and the text for it.
//
// Start at [From]. Front doors call it in the one function that renders their errors.
package problem

import (
	"encoding/json"
	"maps"
	"time"
)

// ContentType is the media type of [Problem.JSON].
const ContentType = "application/json"

// Problem is an error in the form that a client gets.
type Problem struct {
	Status     int            // HTTP status, 400 to 599
	Message    string         // for people; names no key or other tenant, and of paths the data folder alone
	Fields     map[string]any // more fields of the JSON object
	RetryAfter time.Duration  // when trying again may help, else 0
	Corrupt    bool           // stored bytes failed a check: count and log it
	Away       bool           // the key-value store could not be reached: log it
}

// JSON is {"error": message} with the fields, which cannot replace the message.
func (p Problem) JSON() []byte {
	object := make(map[string]any, len(p.Fields)+1)
	maps.Copy(object, p.Fields)
	object["error"] = p.Message
	body, err := json.Marshal(object)
	if err != nil { // a field that is no JSON is a bug; the message still gets through
		body, _ = json.Marshal(map[string]string{"error": p.Message})
	}
	return append(body, '\n')
}
