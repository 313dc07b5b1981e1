package events

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage/credentials"
)

const (
	longPoll   = 20 * time.Second // the longest that SQS allows
	answerTime = 15 * time.Second // in addition to it
	mostBatch  = 10               // messages of one answer
)

// A Queue is one of SQS, or of what speaks its JSON protocol.
type Queue struct {
	url    *string
	client *sqs.Client
	log    *slog.Logger
}

// NewQueue returns the queue at a URL, and asks it for nothing. Requests are signed for the region
// in the URL; for region, if there is none.
func NewQueue(at, region string, source credentials.Source, log *slog.Logger) (*Queue, error) {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a queue", at)
	}
	return &Queue{&at, sqs.New(sqs.Options{
		BaseEndpoint: aws.String(u.Scheme + "://" + u.Host), Region: regionOf(u.Hostname(), region), Credentials: credentials.New(source),
	}), log}, nil
}

// regionOf is the region of a host of AWS, such as sqs.us-east-1.amazonaws.com or one of a VPC endpoint.
func regionOf(host, otherwise string) string {
	labels := strings.Split(host, ".")
	for i, l := range labels[:max(len(labels)-2, 0)] {
		if (l == "sqs" || l == "sqs-fips") && strings.Contains(host, ".amazonaws.com") {
			return labels[i+1]
		}
	}
	return otherwise
}

// Run gives the body of each message to take, and deletes it, until ctx is done. One that take
// refuses is logged and deleted too: it would come again forever.
func (q *Queue) Run(ctx context.Context, take func(body []byte) error) {
	retry.Forever(ctx, func(ctx context.Context, succeeded func()) error {
		for ctx.Err() == nil {
			if err := q.round(ctx, take); err != nil {
				return err
			}
			succeeded()
		}
		return ctx.Err()
	}, func(err error, wait time.Duration) {
		q.log.WarnContext(ctx, "cannot read the queue of S3 events; retrying. The scans of all buckets find what arrives", "wait", wait.Round(time.Millisecond), "err", err)
	})
}

// round receives messages, for which it waits, and deletes them.
func (q *Queue) round(ctx context.Context, take func([]byte) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, longPoll+answerTime)
	defer cancel()
	received, err := q.client.ReceiveMessage(bounded, &sqs.ReceiveMessageInput{
		QueueUrl: q.url, MaxNumberOfMessages: mostBatch, WaitTimeSeconds: int32(longPoll.Seconds()),
	})
	if err != nil {
		return fmt.Errorf("receive messages: %w", err)
	}
	if len(received.Messages) == 0 { // a server that does not wait must not be asked without end
		retry.Pause(ctx, time.Second-time.Since(began))
		return nil
	}
	var done []types.DeleteMessageBatchRequestEntry
	for i, m := range received.Messages {
		if err := take([]byte(aws.ToString(m.Body))); err != nil {
			q.log.WarnContext(ctx, "message of the queue of S3 events deleted: it cannot be read", "message", aws.ToString(m.MessageId), "err", err)
		}
		done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
	}
	bounded, cancel = context.WithTimeout(ctx, answerTime)
	defer cancel()
	deleted, err := q.client.DeleteMessageBatch(bounded, &sqs.DeleteMessageBatchInput{QueueUrl: q.url, Entries: done})
	switch {
	case err != nil:
		return fmt.Errorf("delete messages: %w", err)
	case len(deleted.Failed) > 0:
		f := deleted.Failed[0]
		return fmt.Errorf("delete messages: %d of %d were not deleted: %s: %s", len(deleted.Failed), len(done), aws.ToString(f.Code), aws.ToString(f.Message))
	}
	return nil
}
