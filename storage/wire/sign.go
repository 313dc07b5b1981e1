package wire

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// A signer signs requests by what S3 demands: the host, the length, and the headers that say
// what is asked and what the content is. What a proxy on the way may add, change or take away
// is not covered, or the store would refuse a request that nobody has forged.
type signer struct {
	*v4.Signer

	keys *keys
}

func newSigner(k *keys) signer {
	return signer{v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), k} // as the SDK's own for S3
}

// SignHTTP signs a request of the SDK's, at the time that the server's clock is believed to show.
func (s signer) SignHTTP(
	ctx context.Context, _ aws.Credentials, r *http.Request, payload, service, region string, at time.Time, o ...func(*v4.SignerOptions),
) error {
	key, err := s.keys.now(ctx)
	if err != nil {
		return err
	}
	offset, _ := ctx.Value(offsetKey{}).(time.Duration)
	r.URL.RawQuery = withoutID(r.URL.RawQuery)
	return s.sign(ctx, key, r, payload, service, region, at.Add(offset), o...)
}

func (s signer) sign(
	ctx context.Context, key aws.Credentials, r *http.Request, payload, service, region string, at time.Time, o ...func(*v4.SignerOptions),
) error {
	all := r.Header
	r.Header = make(http.Header, len(all)+2)
	for name, values := range all {
		if strings.HasPrefix(name, "X-Amz-") || name == "Content-Md5" || name == "Content-Type" {
			r.Header[name] = values
		}
	}
	err := s.Signer.SignHTTP(ctx, key, r, payload, service, region, at, o...)
	for name, values := range all {
		if _, covered := r.Header[name]; !covered {
			r.Header[name] = values
		}
	}
	return err
}

// withoutID takes the SDK's name of the operation out of a query: it is for logs, and some
// stores leave it out of what they verify.
func withoutID(query string) string {
	if !strings.Contains(query, "x-id=") {
		return query
	}
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool { return strings.HasPrefix(p, "x-id=") })
	return strings.Join(parts, "&")
}
