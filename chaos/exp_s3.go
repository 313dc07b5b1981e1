package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/internal/oracle"
)

const allDo = "all Success, some seconds late"

// s3Experiments have S3 say no, say nonsense, or say nothing.
func s3Experiments() []experiment {
	return []experiment{
		{
			name: "s3-403", short: true, does: "S3 answers 403 AccessDenied to all for 5 s", must: allDo, at: 0.1,
			script: hold(5*time.Second, onS3(all, always(refusal(http.StatusForbidden, "AccessDenied", "Access Denied")))),
		},
		{
			name: "s3-expired-token", does: "S3 answers 400 ExpiredToken to all for 20 s", must: allDo, at: 0.1,
			script: hold(20*time.Second, onS3(all, always(refusal(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")))),
		},
		{
			name: "s3-503", short: true, does: "S3 answers 503 SlowDown to all for 40 s", must: allDo, at: 0.1,
			script: hold(40*time.Second, onS3(all, always(refusal(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")))),
		},
		{
			name: "s3-refused", does: "S3 refuses connections for 40 s", must: allDo, at: 0.1,
			script: hold(40*time.Second, refused(all, toS3)),
		},
		{
			name: "s3-half-500", short: true, does: "half of S3's answers are 500 InternalError for 30 s", must: allDo, at: 0.05,
			script: hold(30*time.Second, onS3(all, func(*site) *rule {
				return refusal(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.").some(0.5)
			})),
		},
		{
			name: "s3-html", short: true, does: "S3 answers HTML with 200 to all for 10 s", must: allDo, at: 0.1,
			script: hold(10*time.Second, onS3(all, func(*site) *rule { return portal() })),
		},
		{
			name: "s3-no-listing", does: "S3 answers listings with a document that is not a listing, for 20 s", must: "nothing left in staging", at: 0.1,
			script: hold(20*time.Second, onS3(all, func(*site) *rule { return emptyList() })),
		},
		{
			name: "s3-stalled", does: "S3 does not answer for 40 s", must: allDo, at: 0.1,
			script: hold(40*time.Second, stalled(all, toS3)),
		},
		{
			name: "s3-slow", does: "S3 takes 2 s for each answer, for 30 s", must: allDo, at: 0.1,
			script: hold(30*time.Second, onS3(all, func(*site) *rule { return slow(2 * time.Second) })),
		},
		{
			name: "s3-cut-each-second", does: "all connections to S3 are cut each second for 30 s", must: allDo, at: 0.05,
			script: hold(30*time.Second, cut(all, toS3)),
		},
	}
}

// answerExperiments damage answers of S3, or harm one bucket or one worker.
func answerExperiments() []experiment {
	return []experiment{
		{
			name: "s3-cut-bodies", does: "each object's first answer breaks off in the middle", must: allDo,
			script: untilDone(time.Minute, onS3(all, func(*site) *rule { return cutBody().when(isRead).firstOnly() })),
		},
		{
			name: "s3-short-bodies", does: "each object's first answer is shorter than the object, and says so", must: allDo,
			script: untilDone(time.Minute, onS3(all, func(*site) *rule { return shortBody().when(isRead).firstOnly() })),
		},
		{
			name: "flip-receiving", short: true, does: "one byte is flipped in the first answer for each object of the receiving buckets", must: "read again before judging: all Success",
			script: untilDone(time.Minute, onS3(all, func(s *site) *rule { return flipByte().when(isRead).firstOnly().in(s.Receiving()...) })),
		},
		{
			name: "flip-staging", does: "one byte is flipped in the first answer for each object of the staging bucket", must: "read again before staging is blamed",
			script: untilDone(time.Minute, onS3(all, func(s *site) *rule { return flipByte().when(isRead).firstOnly().in(s.Staging()) })),
		},
		{
			name: "bucket-gone", short: true, does: "the bucket of target Standard-VA is gone for 20 s, and comes back", must: allDo, at: 0.1,
			script: hold(20*time.Second, bucketGone("standard-va")),
		},
		{
			name: "staging-gone", does: "the staging bucket is gone for 20 s, and comes back", must: allDo, at: 0.1,
			script: hold(20*time.Second, bucketGone("staging")), promise: oracle.Promise{Spends: true},
		},
		{
			name: "two-targets", does: "target Standard-OR answers 503 and target Wasabi-OR 403, both for 30 s", must: allDo, at: 0.1,
			script: hold(30*time.Second,
				onS3(all, func(s *site) *rule {
					return refusal(http.StatusServiceUnavailable, "ServiceUnavailable", "Try later.").in(s.Bucket("standard-or"))
				}),
				onS3(all, func(s *site) *rule {
					return refusal(http.StatusForbidden, "AccessDenied", "Access Denied").in(s.Bucket("wasabi-or"))
				})),
		},
		{
			name: "one-denied", short: true, does: "one worker's S3 secret stops being right once it works, for good", must: "the others process all bags", at: 0.05,
			script: untilDone(2*time.Minute, onS3(firstWorker, func(*site) *rule { return badSignature() })),
		},
		{
			name: "one-s3-refused", does: "one worker is refused by S3, for good", must: "the others process all bags", at: 0.05,
			script: untilDone(2*time.Minute, refused(firstWorker, toS3)),
		},
		{
			name: "one-portal", does: "one worker's network answers HTML with 200 for S3, for good", must: "the others process all bags", at: 0.05,
			script: untilDone(2*time.Minute, onS3(firstWorker, func(*site) *rule { return portal() })),
		},
		{
			name: "one-skewed", short: true, does: "one worker's clock differs by an hour from S3's", must: "all Success",
			script: untilDone(2*time.Minute, onS3(firstWorker, skew(time.Hour))), at: 0.02,
		},
		{
			name: "all-skewed", does: "S3's clock is an hour behind everybody's", must: "all Success",
			script: untilDone(2*time.Minute, onS3(all, skew(-time.Hour))), at: 0.02,
		},
	}
}

func always(r *rule) func(*site) *rule { return func(*site) *rule { return r } }

func skew(by time.Duration) func(*site) *rule {
	return func(s *site) *rule {
		return skewed(by, aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey}, s.Region)
	}
}

// bucketGone takes a bucket out of the gateway, and puts it back with its objects. A
// write that is under way may make the gateway's directory again, so that it is
// taken away again and again; what was written there is put back too.
func bucketGone(what string) fault {
	return fault{name: "bucket gone", begin: func(ctx context.Context, s *site) (active, error) {
		dir, n := s.bucketDir(s.Bucket(what)), 0
		away := func() error {
			err := os.Rename(dir, filepath.Join(s.Dir, fmt.Sprint("away-", n)))
			if err == nil {
				n++
			}
			return err //nolint:wrapcheck // the caller says what it is for
		}
		if err := away(); err != nil {
			return active{}, fmt.Errorf("take the bucket away: %w", err)
		}
		again := repeated("", 20*time.Millisecond, func(context.Context, *site) error {
			if err := away(); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		keeper, err := again.begin(ctx, s)
		if err != nil {
			return active{}, err
		}
		return active{end: func(ctx context.Context) error {
			if err := keeper.end(ctx); err != nil {
				return fmt.Errorf("wait while the bucket is away: %w", err)
			}
			for i := range n {
				if err := merge(filepath.Join(s.Dir, fmt.Sprint("away-", i)), dir); err != nil {
					return fmt.Errorf("put the bucket back: %w", err)
				}
			}
			return nil
		}}, nil
	}}
}

// merge moves a directory, or what is in it where there is one already.
func merge(from, to string) error {
	if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
		return os.Rename(from, to) //nolint:wrapcheck // the caller says what it is for
	}
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, merge(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		} else {
			err = errors.Join(err, os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
	}
	return err
}
