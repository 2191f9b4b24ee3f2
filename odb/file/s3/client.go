package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"packhorse/odb/file"
)

const (
	// regionDefault is what services with an endpoint of their own are asked for.
	regionDefault = "us-east-1"
	// stallTime is how long a connection may deliver nothing: a peer that has vanished never answers.
	stallTime = 20 * time.Second
	// credentialsTime bounds the search for credentials at the start.
	credentialsTime = 20 * time.Second
	// connectionsIdle is how many connections stay open for the next request.
	connectionsIdle = 128
)

var errNoRegion = errors.New("no region: set region=NAME, or AWS_REGION")

// newClient returns the client of a location, and completes its region. Options have a log.
func newClient(ctx context.Context, options *Options) (*s3.Client, error) {
	transport := awshttp.NewBuildableClient().WithReadTimeout(stallTime).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = connectionsIdle, connectionsIdle
	})
	// What a caller must know is in the error of the call. What else the client has to say, such as
	// that a connection cannot be used again, does not belong among the output of a command.
	quiet := logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		options.Log.Debug("s3: "+fmt.Sprintf(format, args...), "store", options.String())
	})
	loaders := []func(*config.LoadOptions) error{config.WithHTTPClient(transport), config.WithLogger(quiet)}
	if options.Credentials != nil {
		loaders = append(loaders, config.WithCredentialsProvider(options.Credentials))
	}
	loaded, err := config.LoadDefaultConfig(ctx, loaders...)
	if err != nil {
		return nil, err
	}
	region := cmp.Or(options.Region, loaded.Region)
	if region == "" && options.Endpoint == "" {
		return nil, errNoRegion
	}
	options.Region = cmp.Or(region, regionDefault)
	search, cancel := context.WithTimeout(ctx, credentialsTime)
	defer cancel()
	if _, err := loaded.Credentials.Retrieve(search); err != nil {
		return nil, fmt.Errorf("%w: no credentials: %w", file.ErrUnavailable, err)
	}
	return s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.Region = options.Region
		o.UsePathStyle = options.PathStyle
		o.Retryer = aws.NopRetryer{} // see Store.try, which also knows of bodies that break off
		if options.Endpoint != "" {
			o.BaseEndpoint = &options.Endpoint
		}
		// By default the client sends checksums that only Amazon understands. Over TLS an upload has an
		// MD5, which all services know. Without it the signature has a hash of the content.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if !options.isPlain() {
			o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		}
	}), nil
}
