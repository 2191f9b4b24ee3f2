package remote

import (
	"slices"
	"strings"

	"packhorse/pack/pktline"
)

// capabilities are the advertised capabilities of a far side: names, each with its values, "" for
// none.
type capabilities map[string][]string

func parseCapabilities(words []string) capabilities {
	caps := make(capabilities)
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		caps[name] = append(caps[name], value)
	}
	return caps
}

func (c capabilities) has(name string) bool { return c[name] != nil }

// offers reports whether a capability was advertised with a value; a capability holds several,
// separated by spaces.
func (c capabilities) offers(name, value string) bool {
	return slices.ContainsFunc(c[name], func(told string) bool { return slices.Contains(strings.Fields(told), value) })
}

// capabilitiesMax bounds the lines of a version 2 advertisement.
const capabilitiesMax = 1000

// readCapabilities reads the lines after "version 2": one capability each.
func (ad *Advertisement) readCapabilities(a *answer, lines *pktline.Reader) error {
	var words []string
	for {
		kind, text, err := a.next(lines)
		if err != nil {
			return err
		}
		if kind == pktline.Flush {
			break
		}
		if kind != pktline.Data {
			return a.fail(ErrProtocol, "a %s packet among the capabilities", kind)
		}
		if len(words) == capabilitiesMax {
			return a.fail(ErrLimit, "more than %d capabilities", capabilitiesMax)
		}
		words = append(words, text)
	}
	ad.caps = parseCapabilities(words)
	for _, command := range []string{"ls-refs", "fetch"} {
		if !ad.caps.has(command) {
			return a.fail(ErrProtocol, "the far side does not know the command %s", command)
		}
	}
	return ad.checkFormat(a)
}

// checkFormat refuses repositories whose object ids are not SHA-1.
func (ad *Advertisement) checkFormat(a *answer) error {
	if format := ad.caps["object-format"]; format != nil && !slices.Contains(format, "sha1") {
		return a.fail(ErrProtocol, "object ids are %.20q, not SHA-1", format[0])
	}
	return nil
}
