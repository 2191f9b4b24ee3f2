package engine

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"unicode"

	"packhorse/engine/credential"
	"packhorse/engine/outbound"
	"packhorse/engine/upstream"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/space"
	"packhorse/pack"
	"packhorse/refs"
)

// lastErrorMax bounds what is kept of an error, in bytes.
const lastErrorMax = 1000

// told is how clients hear of why a sync failed: in the words of the error when it is about the upstream, or what came from there, and in
// none when it is about the stores.
func (s *syncing) told(err error) string {
	text := err.Error()
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		text = refused.Told()
	} else if !isAboutUpstream(err) {
		return "internal error"
	}
	text = s.hide(text)
	if len(text) > lastErrorMax {
		text = strings.ToValidUTF8(text[:lastErrorMax], "") + "..."
	}
	return text
}

func isAboutUpstream(err error) bool {
	var refused *upstream.RefsError
	var far *upstream.FarError
	return errors.As(err, &refused) || errors.As(err, &far) || ingest.IsBadPack(err) ||
		errors.Is(err, pack.ErrLimit) || errors.Is(err, odb.ErrTooLarge) || errors.Is(err, refs.ErrLimit) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, space.ErrShort) || errors.Is(err, space.ErrNoRoom) || errors.Is(err, credential.ErrKey) || errors.Is(err, ErrNoApp)
}

// hide returns text without control characters and without the secrets that were shown to the upstream, which may send them back.
func (s *syncing) hide(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	for _, secret := range s.secrets {
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
	// In base64 what stands in front decides how the rest looks; the letters at both ends depend on their neighbours.
	for lead := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", lead) + secret))
		inner := strings.TrimRight(encoded, "=")
		if cut := []int{0, 2, 3}[lead]; len(inner) > cut+4 {
			forms = append(forms, inner[cut:len(inner)-1])
		}
	}
	return forms
}
