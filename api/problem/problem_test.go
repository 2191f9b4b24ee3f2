package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"

	"packhorse/api/code"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/refs"
)

type refusal struct{}

func (refusal) Error() string             { return "not like this" }
func (refusal) StatusCode() int           { return 418 }
func (refusal) ErrorCode() code.Code      { return "teapot" }
func (refusal) RetryAfter() time.Duration { return time.Minute }

func TestFrom(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want problem.Problem
	}{
		"its own status": {
			fmt.Errorf("serve: %w", refusal{}),
			problem.Problem{Status: 418, Code: "teapot", Message: "not like this", RetryAfter: time.Minute},
		},
		"sentinel, without its package": {
			fmt.Errorf("read tree 1234: %w", odb.ErrNotFound),
			problem.Problem{Status: 404, Code: code.ObjectNotFound, Message: "object not found"},
		},
		"typed, with its evidence": {
			fmt.Errorf("update: %w", &refs.DeniedError{Name: "refs/heads/main", Op: refs.NoPush}),
			problem.Problem{Status: 403, Code: code.PolicyDenied, Message: "denied by policy: no-push on refs/heads/main"},
		},
		"continued sentinel": {
			fmt.Errorf("receive: %w", fmt.Errorf("%w: entry at offset 12", pack.ErrCorrupt)),
			problem.Problem{Status: 400, Code: code.InvalidPack, Message: "corrupt pack: entry at offset 12"},
		},
		"joined": {
			errors.Join(errors.New("close: secret"), fmt.Errorf("at /secret: %w", object.ErrInvalidID)),
			problem.Problem{Status: 400, Code: code.InvalidRequest, Message: "invalid object ID"},
		},
		"with fields": {
			&refs.TrimmedError{Oldest: 7},
			problem.Problem{
				Status:  410,
				Code:    code.EventsGone,
				Message: "journal has been trimmed: the oldest sequence is 7",
				Fields:  map[string]any{"oldest": uint64(7)},
			},
		},
		"type without a sentinel": {
			fmt.Errorf("check: %w",
				&object.CheckError{Type: object.TypeTree, Name: "treeNotSorted", Detail: "not properly sorted"}),
			problem.Problem{Status: 400, Code: code.InvalidObject, Message: "tree: treeNotSorted: not properly sorted"},
		},
		"words with a colon": {
			fmt.Errorf("fetch: %w", &packgen.FilterError{Text: "must escape char in sub-filter-spec: '~'"}),
			problem.Problem{Status: 400, Code: code.InvalidRequest, Message: "must escape char in sub-filter-spec: '~'"},
		},
		"with more fields": {
			fmt.Errorf("commit: %w", problem.With(&refs.TrimmedError{Oldest: 7}, map[string]any{"result": "r"})),
			problem.Problem{
				Status:  410,
				Code:    code.EventsGone,
				Message: "journal has been trimmed: the oldest sequence is 7",
				Fields:  map[string]any{"oldest": uint64(7), "result": "r"},
			},
		},
		"damage before anything else": {
			errors.Join(engine.ErrNotFound, &odb.CorruptError{Why: "checksum"}),
			problem.Problem{Status: 500, Code: code.Corrupt, Message: "internal error", Corrupt: true},
		},
		"busy": {
			refs.ErrBusy,
			problem.Problem{Status: 503, Code: code.Busy, Message: "repository is busy", RetryAfter: time.Second},
		},
		"disk full": {
			fmt.Errorf("write: %w", &os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}),
			problem.Problem{Status: 507, Code: code.ShortOfDisk, Message: "the server is short of disk space"},
		},
		"store away": {
			errors.Join(engine.ErrNotFound, fmt.Errorf("read head: %w", kv.ErrUnavailable)),
			problem.Problem{
				Status: 503, Code: code.Unavailable, Message: "the storage is not available, try again",
				RetryAfter: 2 * time.Second, Away: true,
			},
		},
		"outcome not known": {
			errors.Join(kv.ErrUnavailable, fmt.Errorf("update refs: %w", kv.ErrUnknown)),
			problem.Problem{
				Status: 503, Code: code.OutcomeUnknown, Message: "the storage went away during the write, and it is not known whether the write was made: " +
					"the same request with the same Idempotency-Key tells it", RetryAfter: 2 * time.Second, Away: true,
			},
		},
		"store's own bug": {
			kv.ErrNotFound,
			problem.Problem{Status: 500, Code: code.Internal, Message: "internal error"},
		},
		"cut file": {
			fmt.Errorf("read layer: %w", io.ErrUnexpectedEOF), problem.Problem{Status: 500, Code: code.Internal, Message: "internal error"},
		},
		"cancelled": {
			context.Canceled, problem.Problem{Status: 503, Code: code.Cancelled, Message: "the request was cancelled", RetryAfter: time.Second},
		},
		"too slow": {context.DeadlineExceeded, problem.Problem{Status: 504, Code: code.Timeout, Message: "the request took too long"}},
		"unknown":  {errors.New("password is hunter2"), problem.Problem{Status: 500, Code: code.Internal, Message: "internal error"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := problem.From(test.err); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		problem problem.Problem
		want    map[string]any
	}{
		"message": {
			problem.Problem{Message: "a \"b\"", Code: code.Busy}, map[string]any{"error": "a \"b\"", "code": "busy"},
		},
		"fields": {
			problem.Problem{Message: "m", Code: code.Busy, Fields: map[string]any{"n": 1}},
			map[string]any{"error": "m", "code": "busy", "n": 1.0},
		},
		"no field is the message, or the code": {
			problem.Problem{Message: "m", Code: code.Busy, Fields: map[string]any{"error": "x", "code": "y"}},
			map[string]any{"error": "m", "code": "busy"},
		},
		"a field that is no JSON": {
			problem.Problem{Message: "m", Code: code.Busy, Fields: map[string]any{"f": func() {}}},
			map[string]any{"error": "m", "code": "busy"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got map[string]any
			if err := json.Unmarshal(test.problem.JSON(), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
