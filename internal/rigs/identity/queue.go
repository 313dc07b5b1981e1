package identity

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// hidden is how long a message that was received and not deleted stays out of sight.
const hidden = time.Second

// A Queue stands in for one of SQS. It takes requests that a key of its platform signed, and hands
// out a message until it is deleted.
type Queue struct {
	URL string

	platform *Platform
	server   *httptest.Server

	mu       sync.Mutex
	messages map[string]*message // by handle
	sent     int
	received int
	refuses  bool
	more     chan struct{} // closed when there is something to receive, or a change
}

type message struct {
	body  string
	until time.Time // it is out of sight
}

// NewQueue starts a queue. Close ends it.
func (p *Platform) NewQueue() *Queue {
	q := &Queue{platform: p, messages: map[string]*message{}, more: make(chan struct{})}
	q.server = httptest.NewServer(http.HandlerFunc(q.serve))
	q.URL = q.server.URL + "/123456789012/arrivals"
	return q
}

// Close ends it, and the requests that wait.
func (q *Queue) Close() {
	q.server.CloseClientConnections()
	q.server.Close()
}

// Trust has the platform take a key that another one has handed out.
func (p *Platform) Trust(c aws.Credentials) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[c.AccessKeyID] = key{c, "own"}
}

// Send adds messages.
func (q *Queue) Send(bodies ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, body := range bodies {
		q.sent++
		q.messages[strconv.Itoa(q.sent)] = &message{body: body}
	}
	q.wake()
}

// Refuse has the queue refuse all requests, until it is told otherwise.
func (q *Queue) Refuse(now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuses = now
	q.wake()
}

// wake ends the waiting of all who receive.
func (q *Queue) wake() {
	close(q.more)
	q.more = make(chan struct{})
}

// Left counts the messages that nobody has deleted.
func (q *Queue) Left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}

// Received counts the messages that were handed out, each as often as it was.
func (q *Queue) Received() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.received
}

func (q *Queue) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	body, err := io.ReadAll(r.Body)
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:])) // which SQS is not sent
	code := q.platform.signed(r, "sqs")
	q.mu.Lock()
	refuses := q.refuses
	q.mu.Unlock()
	var in struct {
		QueueURL            string `json:"QueueUrl"`
		WaitTimeSeconds     int
		MaxNumberOfMessages int
		Entries             []struct {
			ID     string `json:"Id"`
			Handle string `json:"ReceiptHandle"`
		}
	}
	switch action := r.Header.Get("X-Amz-Target"); {
	case refuses:
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case code != "":
		refuse(w, http.StatusForbidden, code)
	case err != nil || json.Unmarshal(body, &in) != nil:
		refuse(w, http.StatusBadRequest, "SerializationException")
	case in.QueueURL != q.URL:
		refuse(w, http.StatusBadRequest, "com.amazonaws.sqs#QueueDoesNotExist")
	case action == "AmazonSQS.ReceiveMessage":
		_ = json.NewEncoder(w).Encode(map[string]any{"Messages": q.receive(r, in.MaxNumberOfMessages, time.Duration(in.WaitTimeSeconds)*time.Second)})
	case action == "AmazonSQS.DeleteMessageBatch":
		type done struct {
			ID string `json:"Id"`
		}
		var deleted []done
		q.mu.Lock()
		for _, e := range in.Entries {
			delete(q.messages, e.Handle)
			deleted = append(deleted, done{e.ID})
		}
		q.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"Successful": deleted, "Failed": []string{}})
	default:
		refuse(w, http.StatusBadRequest, "InvalidAction")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": "the queue refuses " + strings.ToLower(code)})
}

// receive waits for messages, as long polling does.
func (q *Queue) receive(r *http.Request, most int, wait time.Duration) []map[string]string {
	end := time.After(wait)
	for {
		q.mu.Lock()
		found, more, refuses := q.visible(most), q.more, q.refuses
		q.mu.Unlock()
		if len(found) > 0 || refuses {
			return found
		}
		select {
		case <-more:
		case <-time.After(hidden): // a message may be in sight again
		case <-end:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

func (q *Queue) visible(most int) (found []map[string]string) {
	for handle, m := range q.messages {
		if len(found) < most && time.Now().After(m.until) {
			m.until = time.Now().Add(hidden)
			q.received++
			sum := md5.Sum([]byte(m.body))
			found = append(found, map[string]string{"MessageId": "message " + handle, "ReceiptHandle": handle, "Body": m.body, "MD5OfBody": hex.EncodeToString(sum[:])})
		}
	}
	return found
}
