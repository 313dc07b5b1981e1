package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/identity"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// arrive uploads a bag and returns what its store says of it.
func (s *site) arrive(name string) string {
	s.t.Helper()
	tar := must.Get(bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a", Content: name}}}.Bytes())(s.t)
	must.Get(s.receiving.Put(s.t.Context(), name+".tar", bytes.NewReader(tar), storage.Upload{Size: int64(len(tar))}))(s.t)
	return fmt.Sprintf(`{"Records":[{"eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":"%s.tar"}}}]}`, s.in.ReceivingBucket, name)
}

// post posts an event, and returns the status of the answer.
func post(t *testing.T, url, token, event string) int {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(event)))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer := must.Get(http.DefaultClient.Do(r))(t) //nolint:bodyclose // the next line does
	must.Do(t, answer.Body.Close())
	return answer.StatusCode
}

// A bag is an item seconds after its upload although the next scan is an hour away, whichever
// process reads the receiving buckets, and whichever way the event comes. A queue that refuses
// for a while holds nothing up but its own events.
func TestBagIsAnItemSecondsAfterItArrived(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	platform := identity.New(time.Hour)
	defer platform.Close()
	queue := platform.NewQueue()
	defer queue.Close()
	platform.Trust(aws.Credentials{AccessKeyID: s.s3.AccessKeyID, SecretAccessKey: s.s3.SecretAccessKey})
	const token = "the token of a store"
	with := maps.Clone(s.settings)
	with["FAROL_READ_QUEUE_URL"], with["FAROL_READ_TOKEN"], with["FAROL_HTTP_ADDR"], with["FAROL_READ_INTERVAL"] = queue.URL, token, "127.0.0.1:0", "1h"
	items := 0
	for i, args := range [][]string{{"read-buckets"}, {"schedule", "--jobs", "read-buckets"}} {
		p := startProcess(t, s.binary, t.TempDir(), with, args...)
		address := regexp.MustCompile(`serving metrics and health" addr=(\S+)`)
		p.eventually("its start, and the first scan", func() bool {
			return address.MatchString(p.said()) && ask[bool](t, s.db, `SELECT count(*) > 0 FROM schedules WHERE ended_at IS NOT NULL`)
		})
		at := "http://" + address.FindStringSubmatch(p.said())[1]
		arrives := func(how string, send func(event string)) {
			event := s.arrive(fmt.Sprintf("%s-%d", how, i))
			began := time.Now()
			send(event)
			items++
			p.eventually("an item of "+how, func() bool { return ask[int](t, s.db, `SELECT count(*) FROM work_items`) == items })
			t.Logf("%s, %s: an item after %v", args[0], how, time.Since(began).Round(time.Millisecond))
		}
		arrives("queue", func(event string) { queue.Send(event, "hello", event) })
		queue.Refuse(true)
		arrives("post", func(event string) {
			if refused, taken := post(t, at+"/arrivals", "another token", event), post(t, at+"/arrivals", token, event); refused != http.StatusUnauthorized || taken != http.StatusAccepted {
				t.Errorf("answers: %d and %d", refused, taken)
			}
		})
		p.eventually("the refusal to be logged", func() bool { return strings.Contains(p.said(), "cannot read the queue") })
		queue.Refuse(false)
		arrives("queue-again", func(event string) { queue.Send(event) })
		p.eventually("the queue to be empty", func() bool { return queue.Left() == 0 })
		p.eventually("the events to be counted", func() bool {
			answer := must.Get(http.Get(at + "/metrics"))(t) //nolint:bodyclose // it is closed below, and ends with the test
			text := string(must.Get(io.ReadAll(answer.Body))(t))
			must.Do(t, answer.Body.Close())
			return strings.Contains(text, `farol_arrival_events_total{result="scanned"} 4`) && strings.Contains(text, `farol_arrival_events_total{result="malformed"} 1`) &&
				regexp.MustCompile(`farol_arrival_last_event_timestamp_seconds 1\.\d+e\+09`).MatchString(text)
		})
		stop(t, p)
	}
	if runs := ask[int](t, s.db, `SELECT runs FROM schedules WHERE job = 'read-buckets'`); runs != 1 {
		t.Errorf("all buckets were scanned %d times, want once", runs)
	}
}
