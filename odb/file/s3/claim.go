package s3

import (
	"bytes"
	"context"
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
	// errVersion means that the layout of a bucket is not one that this program knows.
	errVersion = errors.New("unknown version of a bucket")
)

// marker is the content of the marker object.
type marker struct {
	Version int    `json:"version"`
	Store   string `json:"store"`
}

// Claim marks the prefix of the bucket as that of the store with an ID, unless it is marked
// already. Where the service knows conditional writes, one of several callers with different IDs
// wins; elsewhere all but one find out when they claim again, which each start does.
//
// Errors are one line each; [file.ErrUnavailable] is one of them.
func (s *Store) Claim(ctx context.Context, id string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	for range 2 { // the second time to see who was quicker
		found, err := s.readMarker(ctx)
		switch {
		case errors.Is(err, file.ErrNotFound):
		case err != nil:
			return fmt.Errorf("claim %s: %w", s.location, err)
		case found.Version != markerVersion:
			return fmt.Errorf("claim %s: %w: %s says %d, this program knows %d",
				s.location, errVersion, markerName, found.Version, markerVersion)
		case found.Store != id:
			return fmt.Errorf("claim %s: %w: %s says %.100q, this store is %q",
				s.location, errForeign, markerName, found.Store, id)
		default:
			return nil
		}
		text, err := json.Marshal(marker{Version: markerVersion, Store: id})
		if err != nil {
			return err
		}
		if err := s.putSmall(ctx, s.under(markerName), text, true); err != nil && !errors.Is(err, errTaken) {
			return fmt.Errorf("claim %s: %w", s.location, err)
		}
	}
	return fmt.Errorf("claim %s: %w: %s is not found after it was written", s.location, file.ErrUnavailable, markerName)
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
