package githttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/odb/kv"
	"packhorse/odb/space"
	"packhorse/pack"
)

// discardMax is how much of a refused push is discarded, in bytes.
const discardMax = 1 << 30

// refusePush reports err as the result of a push. If a POST ends with an HTTP error, git shows only
// the number, and it reads no answer before it has sent everything. So refusePush discards the rest
// of the request first. It returns errors that do not fit into a report.
func (s *session) refusePush(ask *pushAsk, err error) error {
	if !ask.report || !isRefused(err) || s.discard() != nil {
		return err
	}
	s.x.Stream(http.StatusOK, receivePackResult, func(_ context.Context, w io.Writer) error {
		out := newMuxer(w, ask.bandMax, false)
		if err := out.beginPack(); err != nil {
			return err
		}
		result := ask.refused(err)
		s.tellFailures(result)
		return ask.tellResult(result, out)
	})
	return nil
}

// isRefused reports whether err refuses a well-formed push: for its size, for lack of disk space or
// capacity, or for the number of repositories.
func isRefused(err error) bool {
	if errors.Is(err, engine.ErrQuota) {
		return true
	}
	switch problem.From(err).Status {
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusInsufficientStorage,
		http.StatusServiceUnavailable:
		return !errors.Is(err, context.Canceled)
	default:
		return false
	}
}

// refused is the result of a push without any executed command.
func (a *pushAsk) refused(err error) *engine.PushResult {
	result := &engine.PushResult{Unpack: err}
	for _, command := range a.Commands {
		result.Commands = append(result.Commands, engine.CommandResult{Name: command.Name, Err: engine.RefusedUnpacker})
	}
	return result
}

// discard reads the request to its end, up to that limit.
func (s *session) discard() error {
	s.x.BodyFlows()
	count, err := io.Copy(io.Discard, io.LimitReader(s.x.Body(), s.discardBytesMax+1))
	if err == nil && count > s.discardBytesMax {
		err = errors.New("githttp: more follows than is worth reading")
	}
	return err
}

// unpackReason says why a push was refused as a whole, with the limit that it exceeds.
func unpackReason(err error) string {
	var (
		size     *pack.LimitError
		body     *exchange.LimitError
		commands *engine.LimitError
	)
	switch {
	case errors.As(err, &size):
		return packLimit(size)
	case errors.As(err, &body):
		return fmt.Sprintf("the push is larger than %s, the limit (--pack-max)", space.Size(uint64(body.Max)))
	case errors.As(err, &commands):
		return commands.Error() + " (--commands-max)"
	default:
		return reasonOf(err)
	}
}

// reasonOf is the message for an error of a push. A client of git has no key to repeat a push
// under, and learns from the refs what has become of it.
func reasonOf(err error) string {
	if errors.Is(err, kv.ErrUnknown) {
		return "the storage went away during the push, and it is not known whether the refs have moved: git fetch shows them"
	}
	return problem.From(err).Message
}

// packLimit says which limit a pack exceeds.
func packLimit(e *pack.LimitError) string {
	value, most := space.Size(uint64(e.Value)), space.Size(uint64(e.Max))
	switch e.Limit {
	case "object size":
		return fmt.Sprintf("an object is %s, the limit is %s (--object-max)", value, most)
	case "pack size":
		return fmt.Sprintf("the pack is larger than %s, the limit (--pack-max)", most)
	case "inflated size":
		return fmt.Sprintf("the pack inflates to more than %s, the limit (--inflated-max)", most)
	case "object count":
		return fmt.Sprintf("the pack has %d objects, the limit is %d (--objects-max)", e.Value, e.Max)
	case "delta depth":
		return fmt.Sprintf("a delta chain has %d deltas, the limit is %d (--delta-depth-max)", e.Value, e.Max)
	case "tree depth":
		return fmt.Sprintf("folders are nested %d deep, the limit is %d (--tree-depth-max)", e.Value, e.Max)
	default:
		return problem.From(e).Message
	}
}

// RefuseLFS answers clients of git LFS, which interpret any other answer as a missing or private
// repository.
func RefuseLFS(x exchange.Exchange, _ *auth.Grant) error {
	x.Respond(http.StatusNotImplemented, "application/vnd.git-lfs+json", []byte(
		`{"message": "Packhorse stores large files in git itself; run \"git lfs migrate export --everything --include=*\" and push"}`+"\n"))
	return nil
}
