package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file"
)

const (
	// markerName is the name of the marker object under the prefix.
	markerName = "packhorse.json"
	// markerVersion is the version of the layout of a bucket.
	markerVersion = 1
	// markerBytesMax is the largest marker that is read.
	markerBytesMax = 4 << 10
)

var (
	// errForeign means that a bucket belongs to another installation.
	errForeign = errors.New("the bucket belongs to another store")
	// errBare means that a bucket lacks the files that the store has somewhere.
	errBare = errors.New("the bucket does not have the files of this store, which were in another place")
	// errVersion means that the layout of a bucket is not one that this program knows.
	errVersion = errors.New("unknown version of a bucket")
)

// marker is the content of the marker object.
type marker struct {
	Version int    `json:"version"`
	Store   string `json:"store"`
	Place   string `json:"place"`
}

// Claim marks the prefix of the bucket as that of the store with an ID, unless it is marked
// already, and returns the name of the place, which was made at random with the mark and is copied
// with the bucket. place is the name that the store knows; "" when its files were nowhere yet,
// which alone permits a new mark.
//
// Where the service knows conditional writes, one of several callers wins; elsewhere all but one
// find out when they claim again, which each start does.
//
// Errors are one line each; [file.ErrUnavailable] is one of them.
func (s *Store) Claim(ctx context.Context, id, place string) (string, error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	refuse := func(err error, format string, args ...any) (string, error) {
		return "", fmt.Errorf("claim %s: %w%s", s.location, err, fmt.Sprintf(format, args...))
	}
	for range 2 { // the second time to see who was quicker
		found, err := s.readMarker(ctx)
		switch {
		case errors.Is(err, file.ErrNotFound) && place != "":
			return refuse(errBare, ": %s is not found", markerName)
		case errors.Is(err, file.ErrNotFound):
		case err != nil:
			return refuse(err, "")
		case found.Version != markerVersion:
			return refuse(errVersion, ": %s says %d, this program knows %d", markerName, found.Version, markerVersion)
		case found.Store != id:
			return refuse(errForeign, ": %s says %.100q, this store is %q", markerName, found.Store, id)
		case place != "" && found.Place != place:
			return refuse(errBare, ": %s says %.100q, this store knows %q", markerName, found.Place, place)
		default:
			return found.Place, nil
		}
		text, err := json.Marshal(marker{Version: markerVersion, Store: id, Place: rand.Text()})
		if err != nil {
			return "", err
		}
		if err := s.putSmall(ctx, s.under(markerName), text, true); err != nil && !errors.Is(err, errTaken) {
			return refuse(err, "")
		}
	}
	return refuse(file.ErrUnavailable, ": %s is not found after it was written", markerName)
}

// readMarker returns the content of the marker object.
func (s *Store) readMarker(ctx context.Context) (marker, error) {
	text, err := s.getSmall(ctx, s.under(markerName), "")
	if err != nil {
		return marker{}, err
	}
	var m marker
	if err := json.Unmarshal(text, &m); err != nil {
		return marker{}, fmt.Errorf("%w: %s: %w", errVersion, markerName, err)
	}
	return m, nil
}

// getSmall returns a range of an object, which is all of it if span is empty, and at most
// markerBytesMax bytes.
func (s *Store) getSmall(ctx context.Context, key, span string) ([]byte, error) {
	var text []byte
	err := s.try(ctx, 0, func(ctx context.Context) error {
		in := &s3.GetObjectInput{Bucket: &s.location.Bucket, Key: &key}
		if span != "" {
			in.Range = &span
		}
		out, err := s.client.GetObject(ctx, in)
		if err != nil {
			return err
		}
		text, err = io.ReadAll(io.LimitReader(out.Body, markerBytesMax))
		return errors.Join(err, out.Body.Close())
	})
	return text, err
}

// putSmall stores an object, on the condition that there is none if onlyNew is set and the service
// knows conditions.
func (s *Store) putSmall(ctx context.Context, key string, text []byte, onlyNew bool) error {
	in := &s3.PutObjectInput{Bucket: &s.location.Bucket, Key: &key, ContentLength: aws.Int64(int64(len(text)))}
	if onlyNew && !s.unconditional.Load() {
		in.IfNoneMatch = aws.String("*")
	}
	put := func(ctx context.Context) error {
		in.Body = bytes.NewReader(text)
		_, err := s.client.PutObject(ctx, in)
		return err
	}
	err := s.try(ctx, 0, put)
	if errors.Is(err, errUndone) && in.IfNoneMatch != nil {
		s.unconditional.Store(true)
		in.IfNoneMatch = nil
		err = s.try(ctx, 0, put)
	}
	return err
}
