package wire

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/farol-preservation/farol/storage/credentials"
)

// A Target is one bucket and the way to it.
type Target struct {
	Name            string // what logs and errors call it; "" is the bucket's name
	Bucket          string
	Endpoint        string // http(s)://host[:port]; "" is AWS in Region
	Region          string // "" is us-east-1
	Provider        string // AWS, Wasabi-VA, …; recorded, never interpreted
	StorageClass    string // S3's name, sent with every write; "" sends none
	Encryption      string // likewise: AES256, aws:kms or aws:kms:dsse; "" leaves it to the bucket
	KMSKey          string // that the last two encrypt by; "" is the account's own
	AccessKeyID     string // with the two below, the key that requests are signed by; "": that of the platform
	SecretAccessKey Secret
	SessionToken    Secret            // of a key that ends at some time
	KeyFiles        credentials.Files // that have these three, and are read again
	Profile         string            // of the shared configuration of AWS, for a key of the platform
	RoleARN         string            // of the role that requests are made by; "" is none
	ExternalID      string            // that this role asks for
	CAFile          string            // PEM certificates trusted in addition to the system's; "" adds none
	PathStyle       bool              // bucket in the path; buckets with a dot in their name are addressed so anyway
	Checksum        ChecksumMode
	RestorePriority int // lower is preferred when a file is restored
}

// A Secret is a string that does not show itself: see [credentials.Secret].
type Secret = credentials.Secret

// A ChecksumMode says what a server can be asked to check and keep.
type ChecksumMode string

const (
	// ChecksumAuto leaves it to the caller to find out what the server does. The empty mode is the same.
	ChecksumAuto ChecksumMode = "auto"
	// ChecksumSHA256 sends x-amz-checksum-sha256 and has the server keep it, whatever it says.
	ChecksumSHA256 ChecksumMode = "sha256"
	// ChecksumETag is for servers that refuse checksum headers: it sends
	// Content-MD5 where the MD5 is known, and requires the ETag to be the MD5.
	ChecksumETag ChecksumMode = "etag"
)

// Measured reports whether what the server does is found out, and not set by people.
func (m ChecksumMode) Measured() bool { return m == "" || m == ChecksumAuto }

func (t Target) check() error {
	switch {
	case t.Bucket == "" || strings.ContainsAny(t.Bucket, "/?#% "):
		return fmt.Errorf("bucket name %q is not usable", t.Bucket)
	case t.KeyFiles == credentials.Files{} && (t.AccessKeyID == "") != (t.SecretAccessKey == ""):
		return errors.New("access key ID or secret access key is missing")
	case t.Checksum != "" && t.Checksum != ChecksumAuto && t.Checksum != ChecksumSHA256 && t.Checksum != ChecksumETag:
		return fmt.Errorf("checksum mode %q is not %q, %q or %q", t.Checksum, ChecksumAuto, ChecksumSHA256, ChecksumETag)
	}
	return nil
}

func (t Target) name() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Bucket
}

func (t Target) region() string {
	if t.Region != "" {
		return t.Region
	}
	return "us-east-1"
}

// Credentials says whose the requests are: targets with equal ones share them.
func (t Target) Credentials() credentials.Source {
	s := credentials.Source{
		Key:   credentials.Key{AccessKeyID: t.AccessKeyID, SecretAccessKey: t.SecretAccessKey, SessionToken: t.SessionToken},
		Files: t.KeyFiles, Profile: t.Profile, RoleARN: t.RoleARN, ExternalID: t.ExternalID,
	}
	if s.RoleARN != "" {
		s.Region = t.region()
	}
	return s
}

// endpoint is where the service is, without the bucket.
func (t Target) endpoint() (*url.URL, error) {
	if t.Endpoint == "" {
		return &url.URL{Scheme: "https", Host: "s3." + t.region() + ".amazonaws.com"}, nil
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("endpoint %q is not http(s)://host[:port]", u.Redacted())
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// bucketURL is the endpoint that requests for the bucket go to. A wildcard
// certificate does not cover a bucket with a dot in its name.
func (t Target) bucketURL(endpoint *url.URL) *url.URL {
	u := *endpoint
	if t.PathStyle || strings.Contains(t.Bucket, ".") {
		u.Path += "/" + t.Bucket
	} else {
		u.Host = t.Bucket + "." + u.Host
	}
	return &u
}

// EscapeKey percent-encodes all of a key but its slashes and the unreserved
// characters of RFC 3986 section 2.3, which is how a copy source is to be sent.
func EscapeKey(key string) string {
	form := url.QueryEscape(key) // which differs in the two
	return strings.ReplaceAll(strings.ReplaceAll(form, "+", "%20"), "%2F", "/")
}
