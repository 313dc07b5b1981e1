package storage

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
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
	"golang.org/x/sync/singleflight"
)

const (
	attempts    = 3                // of a request, or of a part
	maxBackoff  = 2 * time.Second  // between them
	dialTimeout = 10 * time.Second // and as much again for TLS
	lastWrite   = 10 * time.Second // to clean up after a caller who has been cancelled
)

// Options tune a [Client]. The zero value of a field stands for its default.
type Options struct {
	Concurrency int           // parts in flight in one PutParts or Copy; 4
	IdleConns   int           // connections kept open to each endpoint; 64
	Stall       time.Duration // silence of a connection in use before it is given up; 60 s
	ServerWork  time.Duration // the same while the server copies or assembles; 10 min
	CopyAbove   int64         // bytes above which a copy on the server is made in parts; 5 GiB, S3's limit
}

func (o Options) withDefaults() Options {
	o.Concurrency = cmp.Or(o.Concurrency, 4)
	o.IdleConns = cmp.Or(o.IdleConns, 64)
	o.Stall = cmp.Or(o.Stall, 60*time.Second)
	o.ServerWork = cmp.Or(o.ServerWork, 10*time.Minute)
	o.CopyAbove = cmp.Or(o.CopyAbove, 5*gibibyte)
	return o
}

// A Client owns the connections that its buckets share, by endpoint.
type Client struct {
	options Options

	mu         sync.Mutex
	transports map[route]*http.Transport
	clocks     map[string]*clock // by the host of an endpoint
	stores     map[string]*store // by endpoint
}

// A route is what decides whether two requests may share a connection. Work on
// the server has connections of its own, since they may keep silent for longer.
type route struct {
	scheme, host, caFile string
	stall                time.Duration
}

// NewClient returns a client without connections.
func NewClient(o Options) *Client {
	return &Client{options: o.withDefaults(), transports: make(map[route]*http.Transport), clocks: make(map[string]*clock), stores: make(map[string]*store)}
}

// Close closes the idle connections. Requests under way are not disturbed.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

// A Bucket is one place where objects are.
type Bucket struct {
	target   Target
	options  Options
	endpoint *url.URL

	api  *s3.Client // for all requests but those of work
	work *s3.Client // server-side copies, completion of uploads

	at         *url.URL          // the bucket
	direct     http.RoundTripper // what api sends by, for a request of our own
	directWork http.RoundTripper // likewise of work
	retryer    aws.Retryer
	signer     signer

	clock      *clock
	store      *store
	versioned  atomic.Pointer[bool] // what the server last said of it; nil before it was asked
	locks      atomic.Pointer[bool] // whether versions may be under Object Lock; nil before it was asked
	lastAnswer atomic.Int64         // when the last request began that the bucket answered, in Unix nanoseconds
	asking     singleflight.Group   // for whether the bucket is there
}

// Bucket returns the bucket of a target. It sends nothing: whether the bucket is
// there and the credentials are good is for [Bucket.Check] to find out. Errors
// are mistakes in the target, or those of reading its CA file.
func (c *Client) Bucket(t Target) (*Bucket, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("target %s: %w", t.name(), err)
	}
	endpoint, err := t.endpoint()
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.name(), err)
	}
	b := &Bucket{
		target: t, options: c.options, endpoint: endpoint, at: t.bucketURL(endpoint), clock: c.clockOf(endpoint.Host), store: c.storeOf(endpoint.String()),
		retryer: newRetryer(), signer: newSigner(),
	}
	at := route{endpoint.Scheme, endpoint.Host, t.CAFile, c.options.Stall}
	transport, err := c.transport(at)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.name(), err)
	}
	at.stall = c.options.ServerWork
	forWork, err := c.transport(at)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.name(), err)
	}
	b.direct, b.directWork = b.clock.transport(transport), b.clock.transport(forWork)
	b.api, b.work = b.connect(b.direct), b.connect(b.directWork)
	return b, nil
}

// connect makes a client of the SDK's, for what is not a [request].
func (b *Bucket) connect(transport http.RoundTripper) *s3.Client {
	t := b.target
	key := aws.Credentials{AccessKeyID: t.AccessKeyID, SecretAccessKey: string(t.SecretAccessKey)}
	return s3.New(s3.Options{
		Region: t.region(),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return key, nil
		}),
		EndpointResolverV2: fixedEndpoint{*b.at, t.region()},
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Retryer: b.retryer,
		// Digests are ours to compute, once; the SDK adds and checks no others.
		RequestChecksumCalculation:                aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:                aws.ResponseChecksumValidationWhenRequired,
		DisableLogOutputChecksumValidationSkipped: true,
		DisableS3ExpressSessionAuth:               aws.Bool(true),
		DisableClockSkewCorrection:                true, // see clock
		HTTPSignerV4:                              b.signer,
		APIOptions: []func(*middleware.Stack) error{strict, b.listen, func(stack *middleware.Stack) error {
			return stack.Finalize.Insert(b.clock, "Retry", middleware.After)
		}},
		Logger: logging.Nop{},
	})
}

// newRetryer says what is tried again, and after which pause.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		o.MaxBackoff = maxBackoff
		// The standard bucket of retry tokens is shared by all requests, so
		// that one bad hour of a server would leave none to the good ones.
		o.RateLimiter = ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(futile)}, o.Retryables...)
	})
}

func (c *Client) clockOf(host string) *clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clocks[host] == nil {
		c.clocks[host] = &clock{}
	}
	return c.clocks[host]
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

func (c *Client) transport(at route) (*http.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.transports[at]; ok {
		return t, nil
	}
	roots, err := trusted(at.caFile)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &guardedConn{Conn: conn, stall: at.stall}, nil
		},
		TLSClientConfig: &tls.Config{
			RootCAs:            roots,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(c.options.IdleConns),
		},
		TLSHandshakeTimeout:    dialTimeout,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  at.stall,
		IdleConnTimeout:        min(30*time.Second, at.stall/2),
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    c.options.IdleConns,
		MaxResponseHeaderBytes: mebibyte,
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         64 << 10,
		DisableCompression:     true, // bytes are to arrive as they are kept
		// HTTP/2 would put all parts on one connection and its one window.
		ForceAttemptHTTP2: false,
	}
	c.transports[at] = t
	return t, nil
}

// trusted is nil, the system's certificates, without a file.
func trusted(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the file may be all that is needed
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("CA file " + caFile + " holds no certificate")
	}
	return pool, nil
}

// A guardedConn gives up when nothing moves for the time of stall. Writing moves
// both directions: while a long body goes out, there is nothing to read.
// A pause of the reader is no stall, since the clock starts with each Read.
type guardedConn struct {
	net.Conn
	stall time.Duration
}

func (c *guardedConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *guardedConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
