package setup

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/wire"
)

// corsRule is the ID of our rule among those of a bucket.
const corsRule = "farol-deposit"

// corsAge is for how many seconds a browser need not ask again.
const corsAge = 3600

// AllowUploads has the server of a bucket let pages of an origin, such as https://farol.example.org, send
// parts with signed URLs. Rules of others stay.
func AllowUploads(ctx context.Context, c *wire.Conn, origin string) error {
	rules, err := corsRules(ctx, c)
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(rules, func(r types.CORSRule) bool { return aws.ToString(r.ID) == corsRule })
	rules = append(rules, types.CORSRule{
		ID: aws.String(corsRule), AllowedMethods: []string{http.MethodPut}, AllowedOrigins: []string{origin}, AllowedHeaders: []string{"*"}, MaxAgeSeconds: aws.Int32(corsAge),
	})
	_, err = c.API.PutBucketCors(ctx, &s3.PutBucketCorsInput{
		Bucket: &c.Target.Bucket, CORSConfiguration: &types.CORSConfiguration{CORSRules: rules},
	})
	if err != nil {
		return c.Wrap("allow uploads to", "", c.Explain(ctx, err))
	}
	return nil
}

// AllowsUploads reports whether pages of an origin may send parts.
func AllowsUploads(ctx context.Context, c *wire.Conn, origin string) (bool, error) {
	rules, err := corsRules(ctx, c)
	return slices.ContainsFunc(rules, func(r types.CORSRule) bool {
		return slices.Contains(r.AllowedMethods, http.MethodPut) && fits(r.AllowedOrigins, origin) && fits(r.AllowedHeaders, "x-amz-checksum-sha256")
	}), err
}

// fits reports whether a value is one of the patterns; a star in one is for
// anything.
func fits(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		before, after, star := strings.Cut(p, "*")
		return p == value || star && len(value) >= len(before)+len(after) && strings.HasPrefix(value, before) && strings.HasSuffix(value, after)
	})
}

// corsRules are those of the bucket; none if it has no configuration.
func corsRules(ctx context.Context, c *wire.Conn) ([]types.CORSRule, error) {
	out, err := c.API.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: &c.Target.Bucket})
	switch code, _ := wire.Words(err); {
	case err == nil:
		return out.CORSRules, nil
	case code == "NoSuchCORSConfiguration":
		return nil, nil
	}
	return nil, c.Wrap("read the CORS configuration of", "", c.Explain(ctx, err))
}
