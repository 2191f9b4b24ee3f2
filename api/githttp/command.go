package githttp

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"packhorse/pack/pktline"
)

// command answers one protocol version 2 request: gitprotocol-v2(5), "Command Request".
func (s *session) command() error {
	body, err := s.body(fetchRequestMax)
	if err != nil {
		return err
	}
	in := pktline.NewReader(body)
	request, err := readCommand(in)
	if err != nil {
		return err
	}
	switch request.name {
	case "":
		// git probes with a lone flush before a large request.
		s.x.Respond(200, "application/x-"+s.service+"-result", nil)
		return nil
	case "ls-refs":
		return s.lsRefs(request)
	case "fetch":
		return s.fetch(request)
	case "object-info":
		return s.objectInfo(request)
	default:
		return malformed("unknown command %q", request.name)
	}
}

// commandRequest is a command with its capabilities and arguments, each without its line end.
type commandRequest struct {
	name         string
	capabilities []string
	arguments    []string
}

// readCommand reads a request to the end of the body. A body that is a lone flush gives a request without a name.
func readCommand(in *pktline.Reader) (commandRequest, error) {
	var request commandRequest
	arguments := false
	for {
		kind, line, err := in.Read()
		if err != nil {
			return request, requestError(err)
		}
		switch kind {
		case pktline.Flush:
			return request, readEnd(in)
		case pktline.Delim:
			if arguments {
				return request, malformed("a second delimiter in the request")
			}
			arguments = true
		case pktline.Data:
			text := strings.TrimSuffix(string(line), "\n")
			name, isCommand := strings.CutPrefix(text, "command=")
			switch {
			case arguments:
				request.arguments = append(request.arguments, text)
			case isCommand && request.name != "":
				return request, malformed("a second command in the request")
			case isCommand:
				request.name = name
			default:
				if format, ok := strings.CutPrefix(text, "object-format="); ok && format != "sha1" {
					return request, malformed("object-format %q is not served, this repository is sha1", format)
				}
				request.capabilities = append(request.capabilities, text)
			}
		default:
			return request, malformed("a response-end packet in a request")
		}
	}
}

// readEnd makes sure that nothing follows the request.
func readEnd(in *pktline.Reader) error {
	_, _, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return requestError(err)
	}
	return malformed("something follows the request's end")
}

// requestError turns an end of the body in the middle of a request into what it is.
func requestError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read request: %w", err)
}
