package object_test

import (
	"errors"
	"reflect"
	"testing"

	"packhorse/pack/object"
)

var oddTags = map[string]string{
	"plain":               "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n\nmessage\n",
	"no tagger":           "object " + hexB + "\ntype commit\ntag v1\n\nmessage\n",
	"no message":          "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n",
	"no trailing newline": "object " + hexB + "\ntype commit\ntag v1\n\nmessage",
	"NUL in message":      "object " + hexB + "\ntype commit\ntag v1\n\nmess\x00age\n",
	"signed":              "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\n\nx\n-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n",
	"signature header":    "object " + hexB + "\ntype commit\ntag v1\ntagger T <t@e> 5 +0100\ngpgsig-sha256 a\n b\n\nx\n",
	"odd tagger":          "object " + hexB + "\ntype commit\ntag v1\ntagger T\n\nx\n",
	"no zone":             "object " + hexB + "\ntype commit\ntag v1\ntagger T <t> 3\n\nx\n",
	"odd name":            "object " + hexB + "\ntype commit\ntag  a b/../c \n\nx\n",
	"tag of tag":          "object " + hexD + "\ntype tag\ntag v1\n\nx\n",
	"tagger late":         "object " + hexD + "\ntype tag\ntag v1\nx y\ntagger T <t@e> 5 +0100\n\nx\n",
}

func TestTagRoundTrip(t *testing.T) {
	t.Parallel()
	for name, data := range oddTags {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tag, err := object.ParseTag([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(tag.Append([]byte("x"))); got != "x"+data {
				t.Errorf("got  %q\nwant %q", got, "x"+data)
			}
			id, kind, err := object.TagLink([]byte(data))
			if err != nil || id != tag.Object || kind != tag.Type {
				t.Errorf("TagLink: %s %s, %v", id, kind, err)
			}
		})
	}
}

func TestParseTag(t *testing.T) {
	t.Parallel()
	got, err := object.ParseTag([]byte(oddTags["plain"]))
	if err != nil {
		t.Fatal(err)
	}
	want := &object.Tag{
		Object: mustID(t, hexB), Type: object.TypeCommit, Name: "v1", Message: "message\n",
		Tagger: &object.Signature{Name: "T", Email: "t@e", Seconds: 5, Zone: "+0100"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	signed, err := object.ParseTag([]byte(oddTags["signature header"]))
	if err != nil {
		t.Fatal(err)
	}
	if value, ok := signed.Header("gpgsig-sha256"); !ok || value != "a\nb" {
		t.Errorf("gpgsig-sha256 %q", value)
	}
	for _, data := range []string{
		"", "type commit\n", "object " + hexB + "\n", "object " + hexB + "\ntype commit\n", "object " + hexB + "\ntype x\ntag v1\n",
		"object " + hexB + "\ntype commit\ntag v1",
	} {
		if _, err := object.ParseTag([]byte(data)); !errors.Is(err, object.ErrMalformed) {
			t.Errorf("%q: error %v", data, err)
		}
	}
}

func TestChangedTagIsWrittenInOrder(t *testing.T) {
	t.Parallel()
	tag, err := object.ParseTag([]byte(oddTags["no zone"]))
	if err != nil {
		t.Fatal(err)
	}
	tag.Tagger.Zone = "+0000"
	want := "object " + hexB + "\ntype commit\ntag v1\ntagger T <t> 3 +0000\n\nx\n"
	if got := string(tag.Append(nil)); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
