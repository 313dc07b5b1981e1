package credentials

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// A platform hands out credentials by the SDK's default chain.
type platform struct {
	profile string

	mu   sync.Mutex
	from aws.CredentialsProvider // nil before the chain was found
}

// load reads what the environment and the shared configuration say, and asks for nothing yet.
func load(ctx context.Context, profile, region string) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(profile), config.WithDefaultRegion(cmp.Or(region, "us-east-1")))
}

func (p *platform) ask(ctx context.Context) (aws.Credentials, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.from == nil {
		c, err := load(ctx, p.profile, "")
		if err != nil {
			return aws.Credentials{}, err
		}
		p.from = c.Credentials
	}
	if cache, ok := p.from.(*aws.CredentialsCache); ok {
		cache.Invalidate() // or it would return what it has until that ends
	}
	got, err := p.from.Retrieve(ctx)
	if err != nil {
		p.from = nil // the files of the configuration may be other ones now
	}
	return got, err
}

// A role is assumed by the security token service, with credentials of another source.
type role struct {
	source Source
	base   func(context.Context) (aws.Credentials, error)
}

// session is what the service writes into its records of what a role did.
const session = "farol"

func (r *role) ask(ctx context.Context) (aws.Credentials, error) {
	profile := ""
	if r.source.OfPlatform() {
		profile = r.source.Profile
	}
	c, err := load(ctx, profile, r.source.Region)
	if err != nil {
		return aws.Credentials{}, err
	}
	c.Region, c.Credentials = r.source.Region, aws.CredentialsProviderFunc(r.base)
	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(c), r.source.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = session
		if r.source.ExternalID != "" {
			o.ExternalID = &r.source.ExternalID
		}
	}).Retrieve(ctx)
}

// refused reports whether the platform answered that it gives none.
func refused(err error) bool {
	var answer *smithyhttp.ResponseError
	return errors.As(err, &answer) && (answer.HTTPStatusCode() == http.StatusForbidden || answer.HTTPStatusCode() == http.StatusUnauthorized || answer.HTTPStatusCode() == http.StatusBadRequest)
}
