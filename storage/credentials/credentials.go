// Package credentials is who Farol is to an S3 service: a key that was set, or one that the
// platform hands out for a time.
//
// Those of the platform come from the default chain of aws-sdk-go-v2: a shared configuration and its
// profiles, web identity (IRSA), the endpoints of ECS and EKS, and the instance metadata service
// (IMDSv2). A [Provider] has new ones before the old ones end, and nobody waits for that.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sync/singleflight"

	"github.com/farol-preservation/farol/fault"
)

// A Secret is a string that does not show itself in logs, JSON or messages.
type Secret string

// String returns stars.
func (Secret) String() string { return "***" }

// GoString returns stars, so that %#v of a struct shows no secret either.
func (Secret) GoString() string { return "***" }

// LogValue returns stars.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText returns stars; encoding/json uses it too.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// A Key is an access key. With a session token it ends at some time.
type Key struct {
	AccessKeyID     string
	SecretAccessKey Secret
	SessionToken    Secret
}

// Files are those that have the parts of a key. "" is one that has another source.
type Files struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// A Source says where credentials come from. Equal sources are the same identity.
type Source struct {
	Key        Key    // none: that of the platform
	Files      Files  // which are read again when they may have changed; they go before Key
	Profile    string // of the shared configuration; "" is AWS_PROFILE, or "default"
	RoleARN    string // is assumed with all that; "" is none
	ExternalID string // that the role asks for
	Region     string // of the security token service, if there is a role
}

// OfPlatform reports whether the key, or the one that assumes a role, comes from the platform.
func (s Source) OfPlatform() bool { return s.Key.AccessKeyID == "" && s.Files == Files{} }

// Identity is the source without where it is asked: those with equal ones may do the same.
func (s Source) Identity() Source {
	s.Region = ""
	return s
}

const (
	// ahead is how long before their end new credentials are asked for, unless they last less
	// than twice as long.
	ahead = 5 * time.Minute
	// fileAge is how old a key may be that was read from files.
	fileAge = 30 * time.Second
	// again is the pause after a failure.
	again = time.Second
	// askTime is how long an answer may take. The metadata service is asked three times.
	askTime = 20 * time.Second
)

// A Provider has the credentials of a source. Its methods may be called at the same time as any
// other.
type Provider struct {
	source Source
	ask    func(context.Context) (aws.Credentials, error)
	static bool

	current atomic.Pointer[held]
	asking  singleflight.Group

	mu     sync.Mutex
	failed time.Time // when ask failed last
	why    error
}

// held are credentials, until when they are good, and from when on there may be better ones.
type held struct {
	aws.Credentials
	got, until, renew time.Time
}

// New returns a provider that has asked for nothing.
func New(s Source) *Provider {
	p := &Provider{source: s}
	base := p.fixed
	switch {
	case s.Files != Files{}:
		base = p.read
	case s.OfPlatform():
		base = (&platform{profile: s.Profile}).ask
	}
	p.static = s.Key.AccessKeyID != "" && s.Files == Files{} && s.RoleARN == ""
	if p.ask = base; s.RoleARN != "" {
		p.ask = (&role{source: s, base: base}).ask
	}
	return p
}

// Retrieve returns credentials that are good now. It waits only where there are none; an error
// is a [fault.Error] of the kind unavailable or denied, without a service.
func (p *Provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if p.static {
		return p.fixed(ctx)
	}
	now := time.Now()
	h := p.current.Load()
	if h != nil && now.Before(h.until) {
		if now.After(h.renew) {
			_ = p.asking.DoChan("", p.renew) // nobody waits for it
		}
		return h.Credentials, nil
	}
	if err := p.failedJustNow(now); err != nil {
		return aws.Credentials{}, err
	}
	select {
	case r := <-p.asking.DoChan("", p.renew):
		if r.Err != nil {
			return aws.Credentials{}, r.Err
		}
		got, _ := r.Val.(aws.Credentials) // renew returns nothing else
		return got, nil
	case <-ctx.Done():
		return aws.Credentials{}, ctx.Err()
	}
}

// Refused says that the store did not know a key, or says that its time is over. It reports whether
// there is another one now.
func (p *Provider) Refused(ctx context.Context, key aws.Credentials) bool {
	if p.static {
		return false
	}
	if h := p.current.Load(); h != nil && same(h.Credentials, key) {
		if time.Since(h.got) < again { // a newer one would be no other
			return false
		}
		p.current.CompareAndSwap(h, nil)
	}
	other, err := p.Retrieve(ctx)
	return err == nil && !same(other, key)
}

func same(one, other aws.Credentials) bool {
	return one.AccessKeyID == other.AccessKeyID && one.SecretAccessKey == other.SecretAccessKey && one.SessionToken == other.SessionToken
}

// failedJustNow is why there are no credentials, if it was asked for them a moment ago: hundreds of
// requests must not become as many questions.
func (p *Provider) failedJustNow(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.failed) < again {
		return p.why
	}
	return nil
}

// renew asks for credentials. Those that there are stay if there are no others.
func (p *Provider) renew() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	got, err := p.ask(ctx)
	now := time.Now()
	if err != nil {
		err = p.source.explain(err)
		p.mu.Lock()
		p.failed, p.why = now, err
		p.mu.Unlock()
		if h := p.current.Load(); h != nil {
			p.current.CompareAndSwap(h, &held{h.Credentials, h.got, h.until, now.Add(again)})
		}
		return nil, err
	}
	h := &held{Credentials: got, got: now, until: now.Add(fileAge), renew: now.Add(fileAge / 2)}
	if got.CanExpire {
		// By a clock that is wrong they are over already; the store may know better.
		left := max(got.Expires.Sub(now), again)
		h.until, h.renew = now.Add(left), now.Add(left-min(ahead, left/2))
	}
	p.current.Store(h)
	return got, nil
}

func (p *Provider) fixed(context.Context) (aws.Credentials, error) {
	k := p.source.Key
	return aws.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: string(k.SecretAccessKey), SessionToken: string(k.SessionToken), Source: "the settings"}, nil
}

// read reads a key from its files. One that is replaced in the midst of it has parts that do not
// belong together: the store refuses it, and it is read again.
func (p *Provider) read(context.Context) (aws.Credentials, error) {
	key := p.source.Key
	var errs []error
	line := func(path, otherwise string) string {
		if path == "" {
			return otherwise
		}
		text, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(text)) == "" {
			err = fmt.Errorf("%s is empty", path)
		}
		errs = append(errs, err)
		return strings.TrimRight(string(text), "\r\n")
	}
	of := p.source.Files
	got := aws.Credentials{
		AccessKeyID:     line(of.AccessKeyID, key.AccessKeyID),
		SecretAccessKey: line(of.SecretAccessKey, string(key.SecretAccessKey)),
		SessionToken:    line(of.SessionToken, string(key.SessionToken)),
		Source:          "files",
	}
	return got, errors.Join(errs...)
}

// explain says whose failure it is that there are no credentials.
func (s Source) explain(err error) error {
	from := "the platform"
	switch {
	case s.RoleARN != "":
		from = "role " + s.RoleARN
	case !s.OfPlatform():
		from = "their files"
	}
	kind, said, known := fault.Network(err)
	switch {
	case !known && refused(err):
		kind = fault.Denied
	case !known:
		kind = fault.Unavailable
	}
	return &fault.Error{Kind: kind, Said: said, Err: fmt.Errorf("have credentials of %s: %w", from, err)}
}
