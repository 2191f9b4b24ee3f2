package githttp

import (
	"errors"
	"io"
	"net/http"
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
	name, arguments, err := readCommand(in)
	if err != nil {
		return err
	}
	switch name {
	case "":
		s.respondEmpty()
		return nil
	case "ls-refs":
		return s.lsRefs(in, arguments)
	case "fetch":
		return s.fetch(in, arguments)
	case "object-info":
		return s.objectInfo(in, arguments)
	default:
		return malformed("invalid command %q", name)
	}
}

// readCommand reads the command and the capabilities, up to the arguments if there are any. A body
// that is empty, or a lone flush, gives no name.
func readCommand(in *pktline.Reader) (name string, arguments bool, err error) {
	for first := true; ; first = false {
		kind, line, err := in.Read()
		if first && errors.Is(err, io.EOF) {
			return "", false, nil
		}
		if err != nil {
			return "", false, requestError(err)
		}
		switch kind {
		case pktline.Flush, pktline.Delim:
			if name == "" && (kind == pktline.Delim || !first) {
				return "", false, malformed("no command requested")
			}
			return name, kind == pktline.Delim, nil
		case pktline.Data:
			text := trimLine(line)
			command, isCommand := strings.CutPrefix(text, "command=")
			switch {
			case isCommand && name != "":
				return "", false, malformed("command %q requested after already requesting command %q", command, name)
			case isCommand && command == "":
				return "", false, malformed("invalid command %q", command)
			case isCommand:
				name = command
			default:
				if err := checkCapability(text); err != nil {
					return "", false, err
				}
			}
		default:
			return "", false, malformed("unexpected %s packet in a request", kind)
		}
	}
}

// checkCapability refuses capabilities that were not advertised, as git does.
func checkCapability(text string) error {
	key, value, _ := strings.Cut(text, "=")
	switch key {
	case "agent", "server-option":
		return nil
	case "object-format":
		return checkFormat(value)
	default:
		return malformed("unknown capability %q", text)
	}
}

func checkFormat(format string) error {
	if format != "sha1" {
		return malformed("mismatched object format: server sha1; client %s", format)
	}
	return nil
}

// readArguments passes the arguments of a command to take, and reads the request to its end.
func readArguments(in *pktline.Reader, arguments bool, take func(argument string) error) error {
	for arguments {
		kind, line, err := in.Read()
		if err != nil {
			return requestError(err)
		}
		switch kind {
		case pktline.Flush:
			arguments = false
		case pktline.Data:
			if err := take(trimLine(line)); err != nil {
				return err
			}
		default:
			return malformed("unexpected %s packet among the arguments", kind)
		}
	}
	return readToEnd(in.Rest())
}

func trimLine(line []byte) string { return strings.TrimSuffix(string(line), "\n") }

// respondEmpty answers a request without a command. git probes with a lone flush before a large
// request.
func (s *session) respondEmpty() {
	s.x.Respond(http.StatusOK, "application/x-"+s.service+"-result", nil)
}
