// Package wire is the way to one S3 bucket.
//
// A [Pool] owns the connections. A [Conn] leads to one bucket, at one endpoint, with one key. The four
// operations that move objects are sent by [Conn.Send], all others by the SDK's clients of the Conn.
// Both have the same connections, signer, clock and retries, and refuse what is no answer of S3.
// [Conn.Explain] makes an error of either one of this package's, and says whose failure it is.
//
// Every method of a Conn may be called at the same time as any other.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyauth "github.com/aws/smithy-go/auth"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
)

const (
	// Attempts is how often a request is tried at most.
	Attempts = 3
	// MaxBackoff bounds the pause between two attempts.
	MaxBackoff = 2 * time.Second
	// NoCapacity is the code of S3's for having none for the tier Expedited of a restoration.
	NoCapacity = "GlacierExpeditedRetrievalNotAvailable"
)

// A Conn is the way to one bucket at one endpoint with one key.
type Conn struct {
	Target   Target
	Endpoint *url.URL // of the service, without the bucket

	API  *s3.Client // for all requests but those of Work
	Work *s3.Client // server-side copies, completion of uploads

	at         *url.URL          // the bucket
	direct     http.RoundTripper // what API sends by, for a request of our own
	directWork http.RoundTripper // likewise of Work
	retryer    patientRetryer
	pace       *pace
	keys       *keys
	signer     signer
	clock      *clock
	heard      func(ctx context.Context, began time.Time, h http.Header, err error)
	detour     func()
}

// Conn returns the way to the bucket of a target. It sends nothing. Errors are mistakes in the
// target, or those of reading its CA file. heard is told of each request once it has ended: when
// it began, its error and, after a success of [Conn.Send], the header of the answer. It is called
// by several goroutines at a time, and must be quick; so is detour, for each request that S3 itself
// would not have needed.
func (p *Pool) Conn(t Target, heard func(ctx context.Context, began time.Time, h http.Header, err error), detour func()) (*Conn, error) {
	c, err := p.conn(t, heard, detour)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.name(), err)
	}
	return c, nil
}

func (p *Pool) conn(t Target, heard func(ctx context.Context, began time.Time, h http.Header, err error), detour func()) (*Conn, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	endpoint, err := t.endpoint()
	if err != nil {
		return nil, err
	}
	at := route{endpoint.Scheme, endpoint.Host, t.CAFile, p.stall}
	transport, err := p.transport(at)
	if err != nil {
		return nil, err
	}
	at.stall = p.serverWork
	forWork, err := p.transport(at)
	if err != nil {
		return nil, err
	}
	own := p.paceOf(endpoint.Host+"/"+t.Bucket, fault.Bucket(t.name()))
	c := &Conn{
		Target: t, Endpoint: endpoint, at: t.bucketURL(endpoint), retryer: patientRetryer{newRetryer(), own}, pace: own,
		keys:  &keys{p.keysOf(t.Credentials()), fault.Bucket(t.name())},
		clock: p.clockOf(endpoint.Host), heard: heard, detour: detour,
	}
	c.signer = newSigner(c.keys)
	c.direct = askingTransport{c.clock.transport(transport), &c.clock.unasked, detour}
	c.directWork = c.clock.transport(forWork)
	c.API, c.Work = c.connect(c.direct), c.connect(c.directWork)
	return c, nil
}

// connect makes a client of the SDK's, for what is not a [Request].
func (c *Conn) connect(transport http.RoundTripper) *s3.Client {
	t := c.Target
	return s3.New(s3.Options{
		Region: t.region(),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "of", SecretAccessKey: "the signer"}, nil // it is had for each try
		}),
		EndpointResolverV2: fixedEndpoint{*c.at, t.region()},
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Retryer: c.retryer,
		// Digests are ours to compute, once; the SDK adds and checks no others.
		RequestChecksumCalculation:                aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:                aws.ResponseChecksumValidationWhenRequired,
		DisableLogOutputChecksumValidationSkipped: true,
		DisableS3ExpressSessionAuth:               aws.Bool(true),
		DisableClockSkewCorrection:                true, // see clock
		ContinueHeaderThresholdBytes:              -1,   // it would ask, and not wait for the answer
		HTTPSignerV4:                              c.signer,
		APIOptions: []func(*middleware.Stack) error{strict, c.listen, func(stack *middleware.Stack) error {
			return errors.Join(stack.Finalize.Insert(c.clock, "Retry", middleware.After), stack.Finalize.Insert(c.keys, "Retry", middleware.After))
		}},
		Logger: logging.Nop{},
	})
}

// newRetryer says what is tried again, and after which pause.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = Attempts
		o.MaxBackoff = MaxBackoff
		// The standard bucket of retry tokens is shared by all requests, so
		// that one bad hour of a server would leave none to the good ones.
		o.RateLimiter = ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(futile)}, o.Retryables...)
	})
}

// futile has the SDK try no more where there is no capacity, or no TLS that could be
// trusted: it will be the same in a second.
func futile(err error) aws.Ternary {
	if code, _ := Words(err); code == NoCapacity {
		return aws.FalseTernary
	}
	if k, _, ok := fault.Network(err); ok && k != fault.Unavailable {
		return aws.FalseTernary
	}
	return aws.UnknownTernary
}

// A fixedEndpoint spares each request the rules by which the SDK would find the
// URL that we have already.
type fixedEndpoint struct {
	bucket url.URL
	region string
}

// ResolveEndpoint makes the options afresh each time, since the SDK writes to
// them.
func (e fixedEndpoint) ResolveEndpoint(context.Context, s3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	sign := &smithyauth.Option{SchemeID: smithyauth.SchemeIDSigV4}
	smithyhttp.SetSigV4SigningName(&sign.SignerProperties, "s3")
	smithyhttp.SetSigV4SigningRegion(&sign.SignerProperties, e.region)
	smithyhttp.SetDisableDoubleEncoding(&sign.SignerProperties, true) // S3 signs keys as they are sent
	endpoint := smithyendpoints.Endpoint{URI: e.bucket}
	smithyauth.SetAuthOptions(&endpoint.Properties, []*smithyauth.Option{sign})
	return endpoint, nil
}

// listen tells of the requests of the SDK's.
func (c *Conn) listen(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("FarolPresence", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		began := time.Now()
		asked := &request{began: began}
		ctx, end := c.called(ctx, middleware.GetOperationName(ctx))
		out, metadata, err := next.HandleInitialize(context.WithValue(ctx, requestKey{}, asked), in)
		if errors.Is(err, context.DeadlineExceeded) && AsksPatience(asked.refusal) {
			err = asked.refusal // what took the time is that the store asked for it
		}
		end(err)
		c.heard(ctx, began, nil, err)
		return out, metadata, err
	}), middleware.Before)
}

// Name is what logs and errors call the bucket: its target's name, or else its own.
func (c *Conn) Name() string { return c.Target.name() }

// Region is where the bucket is, us-east-1 if its target does not say.
func (c *Conn) Region() string { return c.Target.region() }

// Service is the name of the bucket as a service, see [fault.Bucket].
func (c *Conn) Service() string { return fault.Bucket(c.Name()) }

// Transport is how requests for the bucket are sent, for those that others have signed.
func (c *Conn) Transport() http.RoundTripper { return c.direct }

var regionalHost = regexp.MustCompile(`^s3\.\w{2}-\w+-\d\.`)

// URL is where an object is, and the name under which a stored file is recorded: the
// bucket at its endpoint, as that is configured. Of AWS and Wasabi it names the
// region, which their endpoints need not: https://s3.<region>.<host>/<bucket>/<key>.
func (c *Conn) URL(key string) string {
	u := *c.Endpoint
	regional := strings.HasSuffix(u.Host, ".amazonaws.com") || strings.HasSuffix(u.Host, ".wasabisys.com")
	if regional && !regionalHost.MatchString(u.Host) {
		u.Host = "s3." + c.Target.region() + "." + strings.TrimPrefix(u.Host, "s3.")
	}
	return u.String() + "/" + c.Target.Bucket + "/" + EscapeKey(key)
}
