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
)

const allDo = "all Success, some seconds late"

// s3Experiments have S3 say no, say nonsense, or say nothing.
func s3Experiments() []experiment {
	return []experiment{
		trial("s3-403", "S3 answers 403 AccessDenied to all for 5 s", allDo, 0.1,
			hold(5*time.Second, onS3(all, always(refusal(http.StatusForbidden, "AccessDenied", "Access Denied"))))).inShort(),
		trial("s3-expired-token", "S3 answers 400 ExpiredToken to all for 20 s", allDo, 0.1,
			hold(20*time.Second, onS3(all, always(refusal(http.StatusBadRequest, "ExpiredToken", "The provided token has expired."))))),
		trial("s3-503", "S3 answers 503 SlowDown to all for 40 s", allDo, 0.1,
			hold(40*time.Second, onS3(all, always(refusal(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate."))))).inShort(),
		trial("s3-refused", "S3 refuses connections for 40 s", allDo, 0.1,
			hold(40*time.Second, refused(all, toS3))),
		trial("s3-half-500", "half of S3's answers are 500 InternalError for 30 s", allDo, 0.05,
			hold(30*time.Second, onS3(all, func(*site) *rule {
				return refusal(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.").some(0.5)
			}))).inShort(),
		trial("s3-html", "S3 answers HTML with 200 to all for 10 s", allDo, 0.1,
			hold(10*time.Second, onS3(all, func(*site) *rule { return portal() }))).inShort(),
		trial("s3-no-listing", "S3 answers listings with a document that is not a listing, for 20 s", "nothing left in staging", 0.1,
			hold(20*time.Second, onS3(all, func(*site) *rule { return emptyList() }))),
		trial("s3-stalled", "S3 does not answer for 40 s", allDo, 0.1,
			hold(40*time.Second, stalled(all, toS3))),
		trial("s3-slow", "S3 takes 2 s for each answer, for 30 s", allDo, 0.1,
			hold(30*time.Second, onS3(all, func(*site) *rule { return slow(2 * time.Second) }))),
		trial("s3-cut-each-second", "all connections to S3 are cut each second for 30 s", allDo, 0.05,
			hold(30*time.Second, cut(all, toS3))),
	}
}

// answerExperiments damage answers of S3, or harm one bucket or one worker.
func answerExperiments() []experiment {
	return []experiment{
		trial("s3-cut-bodies", "each object's first answer breaks off in the middle", allDo, 0,
			untilDone(time.Minute, onS3(all, func(*site) *rule { return cutBody().when(isRead).firstOnly() }))),
		trial("s3-short-bodies", "each object's first answer is shorter than the object, and says so", allDo, 0,
			untilDone(time.Minute, onS3(all, func(*site) *rule { return shortBody().when(isRead).firstOnly() }))),
		trial("flip-receiving", "one byte is flipped in the first answer for each object of the receiving buckets", "read again before judging: all Success", 0,
			untilDone(time.Minute, onS3(all, func(s *site) *rule { return flipByte().when(isRead).firstOnly().in(s.Receiving()...) }))).inShort(),
		trial("flip-staging", "one byte is flipped in the first answer for each object of the staging bucket; a random worker is killed every 2 s, and what it had in memory is read there", "read again before staging is blamed", 0,
			untilDone(time.Minute, kills(), onS3(all, func(s *site) *rule { return flipByte().when(isRead).firstOnly().in(s.Staging()) }))).of(listed).spends(),
		trial("bucket-gone", "the bucket of target Standard-VA is gone for 20 s, and comes back", allDo, 0.1,
			hold(20*time.Second, bucketGone("standard-va"))).inShort(),
		trial("staging-gone", "the staging bucket is gone for 20 s, and comes back", allDo, 0.1,
			hold(20*time.Second, bucketGone("staging"))).spends().of(listed),
		trial("two-targets", "target Standard-OR answers 503 and target Wasabi-OR 403, both for 30 s", allDo, 0.1,
			hold(30*time.Second,
				onS3(all, func(s *site) *rule {
					return refusal(http.StatusServiceUnavailable, "ServiceUnavailable", "Try later.").in(s.Bucket("standard-or"))
				}),
				onS3(all, func(s *site) *rule {
					return refusal(http.StatusForbidden, "AccessDenied", "Access Denied").in(s.Bucket("wasabi-or"))
				}))),
		trial("one-denied", "one worker's S3 secret stops being right once it works, for good", "the others process all bags", 0.05,
			untilDone(2*time.Minute, onS3(firstWorker, func(*site) *rule { return badSignature() }))).inShort(),
		trial("one-s3-refused", "one worker is refused by S3, for good", "the others process all bags", 0.05,
			untilDone(2*time.Minute, refused(firstWorker, toS3))),
		trial("one-portal", "one worker's network answers HTML with 200 for S3, for good", "the others process all bags", 0.05,
			untilDone(2*time.Minute, onS3(firstWorker, func(*site) *rule { return portal() }))),
		trial("one-skewed", "one worker's clock differs by an hour from S3's", "all Success", 0.02,
			untilDone(2*time.Minute, onS3(firstWorker, skew(time.Hour)))).inShort(),
		trial("all-skewed", "S3's clock is an hour behind everybody's", "all Success", 0.02,
			untilDone(2*time.Minute, onS3(all, skew(-time.Hour)))),
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
