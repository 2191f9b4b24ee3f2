package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file"
)

// List implements file.Store, with a request for each thousand files. What a service lists may lag
// behind what it holds.
func (s *Store) List(ctx context.Context) iter.Seq2[file.Info, error] {
	return func(yield func(file.Info, error) bool) {
		prefix := s.under("")
		for token := (*string)(nil); ; {
			page, err := s.page(ctx, prefix, token)
			if err != nil {
				yield(file.Info{}, fmt.Errorf("list %s: %w", s.location, err))
				return
			}
			for _, listed := range page.Contents {
				name := path.Base(aws.ToString(listed.Key))
				if file.CheckName(name) != nil || aws.ToString(listed.Key) != s.key(name) {
					continue // the marker, and what others have put there
				}
				info := file.Info{Name: name, Size: aws.ToInt64(listed.Size), Time: aws.ToTime(listed.LastModified)}
				if !yield(info, nil) {
					return
				}
			}
			if token = page.NextContinuationToken; !aws.ToBool(page.IsTruncated) || token == nil {
				return
			}
		}
	}
}

func (s *Store) page(ctx context.Context, prefix string, token *string) (*s3.ListObjectsV2Output, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	var page *s3.ListObjectsV2Output
	err := s.try(ctx, 0, func(ctx context.Context) (err error) {
		page, err = s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
			Bucket: &s.location.Bucket, Prefix: &prefix, ContinuationToken: token,
		})
		return err
	})
	return page, err
}

// abortListed aborts the multipart uploads of a key that the service lists.
func (s *Store) abortListed(ctx context.Context, key string) error {
	var page *s3.ListMultipartUploadsOutput
	err := s.try(ctx, 0, func(ctx context.Context) (err error) {
		page, err = s.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{
			Bucket: &s.location.Bucket, Prefix: &key,
		})
		return err
	})
	if err != nil {
		return err
	}
	for _, upload := range page.Uploads {
		if aws.ToString(upload.Key) == key && aws.ToString(upload.UploadId) != "" {
			err = errors.Join(err, s.abortUpload(ctx, key, *upload.UploadId))
		}
	}
	return err
}
