// Package contract describes every call of the API: parameters, bodies, answers and errors, as
// docs/api.md tells them and package rest serves them.
//
// Start at [Operations]. The description of a call lies in a file of the name that its handler's
// file has in package rest, with the types of its bodies; the ID of an operation is the name of the
// handler. Where a request has two names for a thing, the newer one comes first, and the older one
// is marked so. The map, by file:
//
//	contract, dryrun                         the list of calls, and their two paths; dry runs of writes
//	info, example                            what all calls have in common; a program of the page
//	repos, usage, credentials, detach        repositories, what they store, their upstream
//	events, orgevents                        the journal of one, and the events of all
//	branches, tags, notes                    refs
//	files, filesread, commits, diff, grep    reading
//	blame, archive
//	commitpack, merge, cherrypick, land,     writing
//	undo, transactions
package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"packhorse/api/openapi"
)

// The families of paths. A path of the second one names the repository.
const (
	v1   = "/api/v1"
	base = "/api"
)

// Route is a row of the table that routes requests.
type Route struct {
	Method string
	Path   string // as in a document: /api/repos/{n}/branches
	Scope  string
	Denied int // the status without the scope
}

// Operations describes routes, in the order of their groups. An error names the routes without a
// description, and the descriptions without a route.
func Operations(routes []Route) ([]openapi.Operation, error) {
	described := All()
	var told []openapi.Operation
	var faults []string
	served := make(map[string]Route)
	for _, route := range routes {
		served[route.Method+" "+route.Path] = route
	}
	for i := range described {
		o := described[i]
		name := o.Method + " " + o.Path
		route, ok := served[name]
		if !ok {
			faults = append(faults, name+" is described and not served")
			continue
		}
		delete(served, name)
		o.Scope, o.Denied = route.Scope, route.Denied
		told = append(told, o)
	}
	for name := range served {
		faults = append(faults, name+" is served and not described")
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return nil, fmt.Errorf("contract: %s", strings.Join(faults, "; "))
	}
	return told, nil
}

// call is one call, with its paths in both families.
type call struct {
	v1, path string // without the part that the family has in common; "" where there is none
	openapi.Operation

	// named changes the description for the second family, whose path says more.
	named func(o *openapi.Operation)

	past   bool // it reads at a moment, if the request names one
	writes bool // it takes an idempotency key and tells the journal position
	org    bool // it is about the organization, not about one repository that exists
}

// All returns the description of each call at each of its paths, without scopes.
func All() []openapi.Operation {
	var told []openapi.Operation
	for _, group := range [][]call{
		repositoryCalls(), usageCalls(), eventCalls(), orgEventCalls(), branchCalls(), tagCalls(), fileCalls(),
		filesReadCalls(), commitCalls(), diffCalls(),
		commitPackCalls(), mergeCalls(), pickCalls(), landCalls(), undoCalls(), transactionCalls(), noteCalls(), grepCalls(),
		blameCalls(), archiveCalls(), detachCalls(), credentialCalls(),
	} {
		for _, c := range group {
			c.complete()
			if c.path != "" {
				o := c.at(base + c.path)
				if c.named != nil {
					c.named(&o)
				}
				if strings.Contains(o.Path, "{n}") {
					o.Parameters = append([]openapi.Parameter{repositoryName}, o.Parameters...)
				}
				told = append(told, o)
			}
			if c.v1 != "" {
				o := c.at(v1 + c.v1)
				if c.path != "" {
					o.Twin = o.ID
				}
				o.ID += "V1"
				told = append(told, o)
			}
		}
	}
	return told
}

// at returns a copy of the description at a path.
func (c *call) at(path string) openapi.Operation {
	o := c.Operation
	o.Path = path
	o.Parameters, o.Answers, o.Errors = slices.Clone(o.Parameters), slices.Clone(o.Answers), slices.Clone(o.Errors)
	return o
}

// complete adds what calls of its kind have in common. A write with a 409 of its own lists causes
// there, and the reuse of its key becomes the last one.
func (c *call) complete() {
	c.Parameters, c.Answers, c.Errors = slices.Clone(c.Parameters), slices.Clone(c.Answers), slices.Clone(c.Errors)
	if c.writes {
		if c.Method == http.MethodDelete {
			c.Parameters = append(c.Parameters, dryRunFlag)
		}
		c.Parameters = append(c.Parameters, idempotencyKey)
		for i := range c.Answers {
			c.Answers[i].Headers = append(c.Answers[i].Headers, repoSequence)
		}
		for i := range c.Errors {
			if e := &c.Errors[i]; e.Status == http.StatusConflict {
				e.Description = strings.TrimSuffix(e.Description, ".") + ", or the idempotency key was used for another request."
			}
		}
		c.orError(fails(http.StatusConflict, "The idempotency key was used for another request."))
		if c.Error == nil {
			c.orError(openapi.Error{
				Status: http.StatusRequestEntityTooLarge, Type: QuotaFailure{},
				Description: "A limit is exceeded, which the message names; or the write would pass a quota.",
			})
		}
	}
	if c.past {
		c.Parameters = append(c.Parameters, query(moment)...)
		c.orError(openapi.Error{
			Status: http.StatusGone, Type: PastFailure{}, Description: "The history of that moment is not kept any more.",
		})
	}
	if !c.org {
		c.Parameters = append(c.Parameters, minSequence)
		c.orError(fails(http.StatusNotFound, "The repository does not exist."))
	}
}

// orError adds an error, unless the call has one of that status.
func (c *call) orError(another openapi.Error) {
	if !slices.ContainsFunc(c.Errors, func(e openapi.Error) bool { return e.Status == another.Status }) {
		c.Errors = append(c.Errors, another)
	}
}

func fails(status int, description string) openapi.Error {
	return openapi.Error{Status: status, Description: description}
}

// query returns parameters of the query, each with its place set.
func query(parameters ...openapi.Parameter) []openapi.Parameter {
	for i := range parameters {
		parameters[i].In = openapi.InQuery
	}
	return parameters
}

// flag is a parameter that is true or false; false by default.
func flag(name, description string) openapi.Parameter {
	return openapi.Parameter{Name: name, Type: false, Schema: "default=false", Description: description}
}

// limit is the size of a page.
func limit(byDefault, most int) openapi.Parameter {
	return openapi.Parameter{
		Name: "limit", Type: 0, Schema: fmt.Sprintf("min=1,default=%d", byDefault),
		Description: fmt.Sprintf("The size of a page: %d at most; a larger number is reduced to that.", most),
	}
}

var (
	repositoryName = openapi.Parameter{
		Name: "n", In: openapi.InPath, Required: true, Example: "web/site",
		Description: "The name of the repository in one segment: `web%2Fsite`. It is the one that the token names.",
	}
	idempotencyKey = openapi.Parameter{
		Name: "Idempotency-Key", In: openapi.InHeader, Schema: "min=1,max=255",
		Description: "Visible ASCII. A request with the same key and body gets the first answer again, for at least 24 hours.",
	}
	minSequence = openapi.Parameter{
		Name: "X-Min-Sequence", In: openapi.InHeader, Type: uint64(0),
		Description: "Answer from this position of the journal or later; 503 after 5 seconds.",
	}
	repoSequence = openapi.Header{
		Name: "X-Repo-Sequence", Type: uint64(0),
		Description: "The position in the journal that the write reached.",
	}

	ephemeral = flag("ephemeral", "Reads the ephemeral namespace.")
	cursor    = openapi.Parameter{
		Name: "cursor", Description: "`next_cursor` of the page before. It stays valid while others write.",
	}
	moment = openapi.Parameter{
		Name: "at", Schema: "Moment",
		Description: "A moment at which the repository is read: a time, or `seq:N`, a position in the journal.",
	}
	revision = openapi.Parameter{
		Name: "ref", Example: "main",
		Description: "A branch, a tag, a full refname, a commit id or a unique prefix of it; the default branch without it.",
	}
)

var (
	// emptyBody is the body of a deletion that is about the repository.
	emptyBody = &openapi.Body{Type: Empty{}, Optional: true, Description: "Empty, or `{}`."}
	// notNeeded is the body of a deletion whose path says all.
	notNeeded = &openapi.Body{
		Type: Empty{}, Optional: true, Description: "Not needed; what it says again must agree with the path.",
	}
)

// Person is an author or a committer.
type Person struct {
	Name  string `json:"name" schema:"required" jsonschema:"not blank; without angle brackets, NUL and line ends"`
	Email string `json:"email" schema:"required" jsonschema:"not blank; without angle brackets, NUL and line ends"`
}

// Page is the end of a listing.
type Page struct {
	NextCursor string `json:"next_cursor,omitempty" jsonschema:"cursor of the next page, if there is one"`
	HasMore    bool   `json:"has_more" jsonschema:"whether there is another page"`
}
