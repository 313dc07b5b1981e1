package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/internal/rigs/identity"
)

// keysLast is how long the credentials of the platform last: shorter than those of any real one.
const keysLast = 30 * time.Second

// identityExperiments have no key that stays: processes get theirs from a platform.
func identityExperiments() []experiment {
	var platform *identity.Platform
	onPlatform := func(s *site) error {
		platform = identity.New(keysLast)
		s.after = append(s.after, func(context.Context) error {
			s.note("%d keys signed requests; %d instances', %d containers', %d roles' were handed out", platform.Used(), platform.Issued("instance"), platform.Issued("container"), platform.Issued("role"))
			platform.Close()
			if platform.Used() < len(s.everyone()) {
				return errors.New("hardly a key of the platform was used")
			}
			return nil
		})
		s.onPlatform(platform)
		return nil
	}
	refuse := func(now bool) step {
		return func(context.Context, *site) error { platform.Refuse(now); return nil }
	}
	return []experiment{
		trial("keys-end", "credentials are the platform's (instance, container, role) and last 30 s", "all Success", 0, nil).prepared(onPlatform),
		trial("keys-refused", "credentials are the platform's and last 30 s; for a minute it hands out none", allDo, 0.05,
			hold(time.Minute, once("refusal", refuse(true), refuse(false)))).prepared(onPlatform),
	}
}

// onPlatform has processes take their credentials from a platform, each in another way, and S3 take no others.
func (s *site) onPlatform(p *identity.Platform) {
	own := aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey}
	for i, w := range s.everyone() {
		w.s3.add(&rule{name: "keys of the platform only", answer: func(out http.ResponseWriter, r *http.Request) bool { return p.Answers(out, r, own) }})
		delete(w.Env, "AWS_ACCESS_KEY_ID")
		delete(w.Env, "AWS_SECRET_ACCESS_KEY")
		switch w.Env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = p.URL; i % 3 {
		case 1:
			w.Env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = p.URL + "/container"
		case 2:
			w.Env["FAROL_S3_ROLE_ARN"], w.Env["FAROL_S3_EXTERNAL_ID"], w.Env["AWS_ENDPOINT_URL_STS"] = identity.Role, identity.ExternalID, p.URL
		}
	}
}
