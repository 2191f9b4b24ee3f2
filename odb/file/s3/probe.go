package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"packhorse/odb/file"
)

// errProbe means that a service does not do what a store needs of it.
var errProbe = errors.New("the service cannot hold a store")

// probe is one thing that is tried of a service.
type probe struct {
	what   string
	needed bool
	try    func(ctx context.Context, key string) error
}

// Probe tries on a file of that name, which nothing else has, what a store asks of a service, and
// removes the file. [Store.Discard] removes what is left of it after an error. without names in one
// line what the service does not do and a store can do without; it is empty if the service does
// everything.
//
// Errors are one line each: what is needed and missing, [file.ErrUnavailable], and the error of
// ctx.
func (s *Store) Probe(ctx context.Context, name string) (without string, err error) {
	if err := s.check(ctx, name); err != nil {
		return "", err
	}
	key := s.key(name)
	var missing, spared []string
	for _, p := range s.probes() {
		err := p.try(ctx, key)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return "", ctx.Err()
		case p.what == probeWrite: // nothing else can be tried
			return "", fmt.Errorf("probe %s: %w", s.location, err)
		case p.needed:
			missing = append(missing, fmt.Sprintf("%s (%s)", p.what, line(err)))
		default:
			spared = append(spared, p.what)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("probe %s: %w, it does not do: %s", s.location, errProbe, strings.Join(missing, ", "))
	}
	return strings.Join(spared, ", "), nil
}

const probeWrite = "writes"

// probeText is the content of the object; its ranges differ from each other.
const probeText = "0123456789abcdef"

// probes returns what is tried, in order: the object is there from the first to the last but one.
func (s *Store) probes() []probe {
	return []probe{
		{probeWrite, true, func(ctx context.Context, key string) error {
			return s.putSmall(ctx, key, []byte(probeText), false)
		}},
		{"reads", true, s.probeRange("", probeText)},
		{"ranges", true, s.probeRange("bytes=3-6", probeText[3:7])},
		{"suffix ranges", true, s.probeRange("bytes=-5", probeText[11:])},
		{"suffix ranges beyond the begin", true, s.probeRange("bytes=-500", probeText)},
		{"conditional writes", false, s.probeCondition},
		{"checksums of uploads", false, s.probeChecksum},
		{"multipart uploads", true, s.probeMultipart},
		{"listings", false, s.probeList},
		{"deletes", true, s.probeDelete},
	}
}

// probeRange reads a range of the object.
func (s *Store) probeRange(span, want string) func(ctx context.Context, key string) error {
	return func(ctx context.Context, key string) error {
		got, err := s.getSmall(ctx, key, span)
		if err == nil && string(got) != want {
			err = broken("%q instead of %q", got, want)
		}
		return err
	}
}

// probeCondition writes the object again on the condition that it is not there.
func (s *Store) probeCondition(ctx context.Context, key string) error {
	err := s.putSmall(ctx, key, []byte(probeText), true)
	if errors.Is(err, errTaken) {
		return nil
	}
	s.unconditional.Store(true)
	return errors.Join(err, errUndone)
}

// probeChecksum writes the object again with a checksum of other bytes, which must be refused.
func (s *Store) probeChecksum(ctx context.Context, key string) error {
	in := &s3.PutObjectInput{
		Bucket: &s.location.Bucket, Key: &key, Body: bytes.NewReader([]byte(probeText)),
		ContentLength: aws.Int64(int64(len(probeText))),
	}
	options := func(*s3.Options) {}
	if s.location.isPlain() {
		options = s3.WithAPIOptions(signNothing)
	} else {
		in.ContentMD5 = aws.String("1B2M2Y8AsgTpgAmY7PhCfg==") // of nothing, as is the hash below
	}
	_, err := s.client.PutObject(ctx, in, options)
	if err == nil {
		return errAnswer
	}
	return nil
}

// signNothing has a request sign the hash of a body without bytes, whatever it sends.
func signNothing(stack *middleware.Stack) error {
	sign := func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		return next.HandleFinalize(v4.SetPayloadHash(ctx, fmt.Sprintf("%x", sha256.Sum256(nil))), in)
	}
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("SignNothing", sign), "ComputePayloadHash", middleware.After)
}

// probeMultipart writes the object again as a multipart upload of one part, and aborts another one.
func (s *Store) probeMultipart(ctx context.Context, key string) error {
	upload, tag, err := s.probePart(ctx, key)
	if err != nil {
		return err
	}
	err = s.try(ctx, 0, func(ctx context.Context) error {
		_, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.location.Bucket, Key: &key, UploadId: &upload,
			MultipartUpload: &types.CompletedMultipartUpload{
				Parts: []types.CompletedPart{{ETag: &tag, PartNumber: aws.Int32(1)}},
			},
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := s.probeRange("", probeText)(ctx, key); err != nil {
		return err
	}
	upload, _, err = s.probePart(ctx, key)
	if err != nil {
		return err
	}
	return s.try(ctx, 0, func(ctx context.Context) error {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket: &s.location.Bucket, Key: &key, UploadId: &upload,
		})
		return err
	})
}

// probePart begins a multipart upload and sends its only part.
func (s *Store) probePart(ctx context.Context, key string) (upload, tag string, err error) {
	err = s.try(ctx, 0, func(ctx context.Context) error {
		out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.location.Bucket, Key: &key})
		if err == nil {
			upload = aws.ToString(out.UploadId)
		}
		return err
	})
	if err != nil {
		return "", "", err
	}
	err = s.try(ctx, 0, func(ctx context.Context) error {
		out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &s.location.Bucket, Key: &key, UploadId: &upload, PartNumber: aws.Int32(1),
			Body: bytes.NewReader([]byte(probeText)), ContentLength: aws.Int64(int64(len(probeText))),
		})
		if err == nil {
			tag = aws.ToString(out.ETag)
		}
		return err
	})
	return upload, tag, err
}

// probeList looks for the object in a listing.
func (s *Store) probeList(ctx context.Context, key string) error {
	page, err := s.page(ctx, key, nil)
	if err == nil && len(page.Contents) != 1 {
		err = broken("%d of 1 objects are listed", len(page.Contents))
	}
	return err
}

// probeDelete removes the object, and looks for it: a service that answers anything but "no such
// key" would make a missing file look like one that cannot be reached.
func (s *Store) probeDelete(ctx context.Context, key string) error {
	if err := s.remove(ctx, key); err != nil {
		return err
	}
	_, err := s.getSmall(ctx, key, "")
	if errors.Is(err, file.ErrNotFound) {
		return nil
	}
	return errors.Join(err, broken("an object that was deleted is not missing"))
}

// line returns the text of an error in one line.
func line(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
