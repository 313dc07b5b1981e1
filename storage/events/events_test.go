package events

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/identity"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage/credentials"
)

const (
	ofAWS   = `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","eventName":"ObjectCreated:CompleteMultipartUpload","s3":{"bucket":{"name":"receiving","arn":"arn:aws:s3:::receiving"},"object":{"key":"a+b.tar","size":7}}}]}`
	ofMinIO = `{"EventName":"s3:ObjectCreated:Put","Key":"receiving/a.tar","Records":[{"eventSource":"minio:s3","eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":"receiving"},"object":{"key":"a.tar"}}}]}`
	ofSNS   = `{"Type":"Notification","MessageId":"1","Message":"{\"Records\":[{\"eventName\":\"ObjectCreated:Put\",\"s3\":{\"bucket\":{\"name\":\"receiving\"}}}]}"}`
	bridged = `{"version":"0","detail-type":"Object Created","source":"aws.s3","resources":["arn:aws:s3:::receiving"],"detail":{"version":"0","bucket":{"name":"receiving"},"object":{"key":"a.tar"}}}`
	test    = `{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026-11-30T20:00:00.000Z","Bucket":"receiving"}`
	removed = `{"Records":[{"eventName":"ObjectRemoved:Delete","s3":{"bucket":{"name":"receiving"}}}]}`
)

func TestBucketsOfEachForm(t *testing.T) {
	t.Parallel()
	two := `{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"}}},{"eventName":"ObjectCreated:Copy","s3":{"bucket":{"name":"a"}}},{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"}}}]}`
	for text, want := range map[string][]string{
		ofAWS: {"receiving"}, ofMinIO: {"receiving"}, ofSNS: {"receiving"}, bridged: {"receiving"}, two: {"a", "b"},
		test: nil, removed: nil, strings.Replace(bridged, "Created", "Deleted", 1): nil, `{"Type":"Notification","Message":` + `"{\"Event\":\"s3:TestEvent\"}"}`: nil,
	} {
		if got, err := Buckets([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "not valid JSON", "{": "not valid JSON", "hello": "not valid JSON", "[]": "wrong type", `{}`: "neither Records", `{"Records":[]}`: "neither Records",
		`{"Records":[{"eventName":"ObjectCreated:Put"}]}`: "no bucket", `{"Records":[{"eventName":5}]}`: "wrong type",
		`{"Type":"Notification","Message":"hello"}`:                                                            "not valid JSON",
		strings.Replace(bridged, "{\"name\":\"receiving\"}", "{\"name\":\""+strings.Repeat("x", 256)+"\"}", 1): "too long",
		// A message of SNS within one is nothing that SNS sends.
		`{"Type":"Notification","Message":"{\"Type\":\"Notification\",\"Message\":\"{}\"}"}`: "neither Records",
	} {
		if got, err := Buckets([]byte(text)); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

func FuzzBuckets(f *testing.F) {
	for _, text := range []string{ofAWS, ofMinIO, ofSNS, bridged, test, removed, "", "{", `{"records":[{"EVENTNAME":"ObjectCreated:"}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		names, err := Buckets(text)
		if err != nil && names != nil {
			t.Errorf("%q and %v", names, err)
		}
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%q has a name twice, or in no order", names)
		}
		for _, name := range names {
			if name == "" || len(name) > mostName {
				t.Errorf("a bucket is named %q", name)
			}
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("the error has %d bytes, which the sender chose: %v", len(err.Error()), err)
		}
	})
}

func TestRegionIsThatOfTheQueue(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"sqs.us-east-2.amazonaws.com": "us-east-2", "sqs-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1", "sqs.cn-north-1.amazonaws.com.cn": "cn-north-1",
		"vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com": "eu-west-1", "127.0.0.1": "here", "sqs.example.org": "here", "sqs": "here",
	} {
		if got := regionOf(host, "here"); got != want {
			t.Errorf("%s is of %s, want %s", host, got, want)
		}
	}
}

// A queue that refuses is asked again, with pauses, and each message is taken once and deleted,
// one that cannot be read too.
func TestQueueIsEmptied(t *testing.T) {
	t.Parallel()
	platform := identity.New(time.Hour)
	defer platform.Close()
	rig := platform.NewQueue()
	defer rig.Close()
	own := platform.Key()
	var log buffer
	q := must.Get(NewQueue(rig.URL, "us-east-1", credentials.Source{
		Key: credentials.Key{AccessKeyID: own.AccessKeyID, SecretAccessKey: credentials.Secret(own.SecretAccessKey)},
	}, slog.New(slog.NewTextHandler(&log, nil))))(t)
	rig.Refuse(true)
	var taken atomic.Int64
	stop := running(t, func(body []byte) error {
		_, err := Buckets(body)
		if err == nil && bytes.Contains(body, []byte("receiving")) {
			taken.Add(1)
		}
		return err
	}, q)
	testenv.Eventually(t, "the refusal to be logged", func() bool { return strings.Contains(log.String(), "ServiceUnavailable") })
	for range 5 {
		rig.Send(ofAWS, ofMinIO, ofSNS, bridged, test, "hello")
	}
	rig.Refuse(false)
	testenv.Eventually(t, "the queue to be empty", func() bool { return rig.Left() == 0 })
	stop()
	if n := strings.Count(log.String(), "cannot be read"); taken.Load() != 25 || rig.Received() != 30 || n != 5 {
		t.Errorf("%d messages were taken of %d, and %d were logged:\n%s", taken.Load(), rig.Received(), n, log.String())
	}
}

// A key that the queue does not know leaves the messages where they are.
func TestQueueRefusesAnotherKey(t *testing.T) {
	t.Parallel()
	platform := identity.New(time.Hour)
	defer platform.Close()
	rig := platform.NewQueue()
	defer rig.Close()
	rig.Send(ofAWS)
	var log buffer
	own := platform.Key()
	q := must.Get(NewQueue(rig.URL, "us-east-1", credentials.Source{
		Key: credentials.Key{AccessKeyID: own.AccessKeyID, SecretAccessKey: "another"},
	}, slog.New(slog.NewTextHandler(&log, nil))))(t)
	stop := running(t, func([]byte) error {
		t.Error("a message was taken")
		return nil
	}, q)
	testenv.Eventually(t, "the refusal to be logged", func() bool { return strings.Contains(log.String(), "SignatureDoesNotMatch") })
	stop()
	if rig.Left() != 1 {
		t.Errorf("%d messages are left", rig.Left())
	}
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running runs a queue until the function that it returns is called.
func running(t *testing.T, take func([]byte) error, q *Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { q.Run(ctx, take) })
	return func() {
		cancel()
		run.Wait()
	}
}
