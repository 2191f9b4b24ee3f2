// Package problem translates errors for clients: every kind of error that a lower floor exports has
// one row in its table, with the HTTP status, the code and the text for it.
//
// Start at [From]. Front doors call it in the one function that renders their errors.
package problem

import (
	"encoding/json"
	"maps"
	"time"

	"packhorse/api/code"
)

// ContentType is the media type of [Problem.JSON].
const ContentType = "application/json"

// Problem is an error in the form that a client gets.
type Problem struct {
	Status     int            // HTTP status, 400 to 599
	Code       code.Code      // for programs; never ""
	Message    string         // for people; names no key or other tenant, and of paths the data folder alone
	Fields     map[string]any // more fields of the JSON object
	RetryAfter time.Duration  // when trying again may help, else 0
	Corrupt    bool           // stored bytes failed a check: count and log it
	Away       bool           // the key-value store could not be reached: log it
}

// JSON is {"error": message, "code": code} and the fields, which cannot replace these two.
func (p Problem) JSON() []byte {
	body, _ := json.Marshal(struct { // texts are always JSON
		Error string    `json:"error"`
		Code  code.Code `json:"code"`
	}{p.Message, p.Code})
	fields := maps.Clone(p.Fields)
	maps.DeleteFunc(fields, func(name string, _ any) bool { return name == "error" || name == "code" })
	more, err := json.Marshal(fields)
	if len(fields) > 0 && err == nil { // a field that is no JSON is a bug; the message still gets through
		body = append(append(body[:len(body)-1], ','), more[1:]...)
	}
	return append(body, '\n')
}
