package object_test

import (
	"errors"
	"testing"

	"packhorse/pack/object"
)

var oddTags = map[string]string{
	"plain":               "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n\nmessage\n",
	"no tagger":           "object " + hexB + "\ntype commit\ntag v1\n\nmessage\n",
	"no message":          "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n",
	"no trailing newline": "object " + hexB + "\ntype commit\ntag v1\n\nmessage",
	"NUL in message":      "object " + hexB + "\ntype commit\ntag v1\n\nmess\x00age\n",
	"signed": "object " + hexB +
		"\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n\nx\n-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n",
	"signature header": "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\ngpgsig-sha256 a\n b\n\nx\n",
	"odd tagger":       "object " + hexB + "\ntype commit\ntag v1\ntagger T\n\nx\n",
	"no zone":          "object " + hexB + "\ntype commit\ntag v1\ntagger T <t> 3\n\nx\n",
	"odd name":         "object " + hexB + "\ntype commit\ntag  a b/../c \n\nx\n",
	"tag of tag":       "object " + hexD + "\ntype tag\ntag v1\n\nx\n",
	"tagger late":      "object " + hexD + "\ntype tag\ntag v1\nx y\ntagger T <t@e> 5 +0100\n\nx\n",
}

func TestTagLink(t *testing.T) {
	t.Parallel()
	for name, data := range oddTags {
		want, kind := mustID(t, hexB), object.TypeCommit
		if name == "tag of tag" || name == "tagger late" {
			want, kind = mustID(t, hexD), object.TypeTag
		}
		if id, got, err := object.TagLink([]byte(data)); err != nil || id != want || got != kind {
			t.Errorf("%s: %s %s, %v", name, id, got, err)
		}
	}
	for _, data := range []string{
		"", "type commit\n", "object " + hexB + "\n", "object " + hexB + "\ntype x\ntag v1\n", "object " + hexB[1:] +
			"\ntype commit\ntag v1\n",
	} {
		if _, _, err := object.TagLink([]byte(data)); !errors.Is(err, object.ErrMalformed) {
			t.Errorf("%q: error %v", data, err)
		}
	}
}
