package upstream

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"packhorse/engine/outbound"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/space"
	"packhorse/pack"
	"packhorse/refs"
)

// lastErrorMax bounds the stored text of an error, in bytes.
const lastErrorMax = 1000

// Secrets are the secrets that were sent to an upstream. It may return them in any text.
type Secrets []string

// Explain returns the text that clients see for a failed sync: the text of the error when it
// concerns the upstream or data from there, and a general one when it concerns the stores. kinds
// are errors of the caller whose texts are shown, too.
func (s Secrets) Explain(err error, kinds ...error) string {
	text := err.Error()
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		text = refused.Told()
	} else if !isAboutUpstream(err, kinds) {
		return "internal error"
	}
	text = s.Hide(text)
	if len(text) > lastErrorMax {
		text = strings.ToValidUTF8(text[:lastErrorMax], "") + "..."
	}
	return text
}

func isAboutUpstream(err error, kinds []error) bool {
	var refused *RefsError
	var far *FarError
	kinds = append(kinds, pack.ErrLimit, odb.ErrTooLarge, refs.ErrLimit, space.ErrShort, space.ErrNoRoom)
	return errors.As(err, &refused) || errors.As(err, &far) || ingest.IsBadPack(err) ||
		slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// Hide returns text without control characters and without the secrets.
func (s Secrets) Hide(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	for _, secret := range s {
		for _, form := range formsOf(secret) {
			text = strings.ReplaceAll(text, form, "***")
		}
	}
	return text
}

// formsOf returns how a secret may be written in a text: as it is, and in the ways of HTTP.
func formsOf(secret string) []string {
	if secret == "" {
		return nil
	}
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret))}
	// In base64 the preceding bytes decide how the rest looks; the letters at both ends depend on
	// their neighbours.
	for lead := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", lead) + secret))
		inner := strings.TrimRight(encoded, "=")
		if cut := []int{0, 2, 3}[lead]; len(inner) > cut+4 {
			forms = append(forms, inner[cut:len(inner)-1])
		}
	}
	return forms
}
