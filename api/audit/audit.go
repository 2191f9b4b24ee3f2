// Package audit writes the audit log: one line of JSON for each request that was answered or
// refused, for each change of refs without a request, and for each change of an organization's keys
// and settings.
//
// Start at [Record], what a line tells, and [Open], which gives the [Writer] that lines go to. The
// map, by file:
//
//	audit, encode     a record, and the line that it becomes
//	changes           the changes of refs that a request makes, which its context collects
//	organization      lines about organizations
//	writer            the queue, its one goroutine, the counts and the alarm
//	sink, syslog      files and standard output; the syslog of the machine
//
// A record has no field for a header but the user agent, for a query, a body or the text of an
// error, which could quote one of them: a secret has no way into a line. docs/monitoring.md
// explains the fields to operators.
package audit

import (
	"time"

	"packhorse/api/code"
	"packhorse/pack/object"
)

// Via is how an action came to the server.
type Via string

// The ways.
const (
	HTTP       Via = "http"
	MCP        Via = "mcp"        // a call of the API within a request of the Model Context Protocol
	Admin      Via = "admin"      // a maintenance command, through the admin socket
	Background Via = "background" // nobody's request, or one that has been answered
)

// Unrouted is the action of a request for which there is no route.
const Unrouted = "none"

// Record is one line of the log. Empty fields are left out.
type Record struct {
	Time         time.Time `json:"-"` // when the request came
	Via          Via       `json:"via"`
	RequestID    string    `json:"request_id,omitempty"`
	Organization string    `json:"organization,omitempty"`
	Repository   string    `json:"repository,omitempty"`
	Action       string    `json:"action"`
	// Subject, KeyID and TokenHash are of a verified token; TokenHash also of one that was refused.
	Subject   string    `json:"sub,omitempty"`
	KeyID     string    `json:"key_id,omitempty"`
	TokenHash string    `json:"token_hash,omitempty"`
	Address   string    `json:"address,omitempty"` // of the client, without a port
	UserAgent string    `json:"user_agent,omitempty"`
	Status    int       `json:"status,omitempty"`
	Error     code.Code `json:"error,omitempty"` // of the first error
	Cut       bool      `json:"cut,omitempty"`   // the answer ended before it was whole
	// Created says that the repository was created together with the refs of Changes.
	Created bool `json:"created,omitempty"`
	// ReceivedBytes and SentBytes are of the bodies.
	ReceivedBytes int64    `json:"received_bytes"`
	SentBytes     int64    `json:"sent_bytes"`
	Changes       []Change `json:"ref_changes,omitempty"`

	// Shortened says that the line was too long for its destination: texts were cut, and LeftOut
	// changes of refs.
	Shortened bool `json:"shortened,omitempty"`
	LeftOut   int  `json:"ref_changes_left_out,omitempty"`
}

// Change is the change of one ref. The ID of a ref that is absent is zero, as in git.
type Change struct {
	Repository string    `json:"repository,omitempty"` // "" for that of the record
	Subject    string    `json:"sub,omitempty"`        // of the token; "" for that of the record
	Ref        string    `json:"ref"`                  // as it is stored, with the prefix of its namespace
	Old        object.ID `json:"old"`
	New        object.ID `json:"new"`
	Sequence   uint64    `json:"sequence"` // of the transaction in the journal of the repository
}
