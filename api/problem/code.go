package problem

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Code returns the kind of an error by the name that docs/api.md has for it, such as
// "refs.ErrDenied", or its status in small letters, such as "not_found", where there is no more to
// know. It quotes nothing that a client has sent.
func Code(err error) string {
	if refusal, ok := errors.AsType[statusError](err); ok {
		if r, ok := refusal.(interface{ Code() string }); ok && r.Code() != "" {
			return r.Code()
		}
		return statusCode(refusal.StatusCode())
	}
	for i := range table {
		row := &table[i]
		kind := row.match(err)
		switch {
		case kind == nil:
		case row.typed != nil: // package.NameError, perhaps of a pointer
			return strings.TrimPrefix(fmt.Sprintf("%T", kind), "*")
		default:
			return cmp.Or(names[kind], statusCode(row.status))
		}
	}
	return statusCode(http.StatusInternalServerError)
}

func statusCode(status int) string {
	return strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_")
}
