package exchange

import (
	"fmt"
	"net/http"

	"packhorse/api/code"
)

// Bounds of the shape of JSON. A decoder remembers each name of an object, to see a second one of
// it, so that many of them take many times the memory of the text.
const (
	depthMax  = 32
	memberMax = 1000
)

// CheckShape refuses JSON that is nested deeper than 32 levels or has an object of more than 1,000
// members, by an [Error] of status 400. Call it before anything is decoded. Invalid JSON may pass.
func CheckShape(data []byte) error {
	var members [depthMax + 1]int // of the object that is open at each depth
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > depthMax {
				return shapeError("nested deeper than %d", depthMax)
			}
			members[depth] = 0
		case '}', ']':
			depth = max(depth-1, 0)
		case ':':
			if members[depth]++; members[depth] > memberMax {
				return shapeError("an object of more than %d members", memberMax)
			}
		}
	}
	return nil
}

func shapeError(format string, bound int) error {
	return &Error{
		Status: http.StatusBadRequest, Code: code.MalformedJSON, Message: "malformed JSON: " + fmt.Sprintf(format, bound),
	}
}
