package pull

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/farol-preservation/farol/web/request"
)

// wellFormed refuses text that could not be stored as it is, such as the escape \ud800, which
// stands for no character: Go's decoder would put another in its place.
func wellFormed(body []byte) error {
	again, any8 := jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)
	switch v := jsontext.Value(body); {
	case !utf8.Valid(body):
		return request.Errorf("the request is not valid UTF-8")
	case bytes.Contains(body, []byte(`\u`)) && !v.IsValid(again) && v.IsValid(again, any8):
		return request.Errorf("the request has half of a surrogate pair, which is not a character")
	}
	return nil
}

// The names of queues and receivers.
const (
	queueNamePattern = `^[A-Za-z0-9.@:/-][A-Za-z0-9._@:/-]{0,254}$`
	longestName      = 255 // bytes
)

var queueName = regexp.MustCompile(queueNamePattern)

func checkQueue(name string) error {
	if !queueName.MatchString(name) {
		return request.Errorf("the queue name %s must be 1 to 255 letters, digits and . _ @ : / - and must not begin with _", request.Quote(name))
	}
	return nil
}

// text reads a JSON string.
func text(what string, raw json.RawMessage, most int) (string, error) {
	if raw == nil {
		return "", request.Errorf("%s is missing; it must be a string", what)
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", request.Errorf("%s is %s; it must be a string", what, request.Short(raw))
	}
	switch {
	case strings.ContainsRune(*s, 0):
		return "", request.Errorf("%s contains the character U+0000, which cannot be stored", what)
	case len(*s) > most:
		return "", request.Errorf("%s is %d bytes long; it may be %d", what, len(*s), most)
	}
	return *s, nil
}

// fields are those of a JSON object. The first mistake is kept, so that what reads them can be
// written as a list of names.
type fields struct {
	request.Fields

	prefix string // of their names, in errors
	err    error
}

// fieldsOf reads an object that may have these keys and no others.
func fieldsOf(what, prefix string, raw json.RawMessage, known ...string) *fields {
	all, err := request.Record(what, raw, known...)
	return &fields{all, prefix, err}
}

func (f *fields) has(name string) bool { return !request.IsNull(f.Values[name]) }

// keep keeps the first mistake.
func (f *fields) keep(err error) {
	if f.err == nil {
		f.err = err
	}
}

// text is a string that has to be there.
func (f *fields) text(name string) string {
	s, err := text(f.prefix+name, f.Values[name], longestName)
	f.keep(err)
	return s
}

// number is a number that must be whole and within bounds.
func (f *fields) number(name string, otherwise, least, most int64) int64 {
	if !f.has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(string(f.Values[name]), 10, 64)
	if err != nil || n < least || n > most {
		f.keep(request.Errorf("%s is %s; it must be a whole number from %d to %d", f.prefix+name, request.Short(f.Values[name]), least, most))
	}
	return n
}

// seconds is a number of seconds, which may be a fraction.
func (f *fields) seconds(name string, otherwise, most time.Duration) time.Duration {
	if !f.has(name) {
		return otherwise
	}
	var s float64
	if err := json.Unmarshal(f.Values[name], &s); err != nil || s < 0 || s > most.Seconds() {
		f.keep(request.Errorf("%s is %s; it must be a number of seconds from 0 to %.0f", f.prefix+name, request.Short(f.Values[name]), most.Seconds()))
	}
	return time.Duration(s * float64(time.Second))
}

// readPost reads the body of POST /post.
func readPost(body []byte) (p postRequest, err error) {
	f := fieldsOf("the request", "", body, "sender", "messages", "delay", "run_at")
	if f.has("sender") {
		s := f.text("sender")
		p.sender = &s
	}
	p.later = readLater(f)
	if f.err != nil {
		return p, f.err
	}
	lists, err := request.Object("messages", f.Values["messages"])
	if err != nil {
		return p, err
	}
	for _, queue := range lists.Names {
		posting, err := readPosting(queue, lists.Values[queue])
		if err != nil {
			return p, err
		}
		if len(posting.Messages) > 0 {
			p.postings = append(p.postings, posting)
		}
	}
	if len(p.postings) == 0 {
		return p, request.Errorf("there is nothing to post: messages must name a queue with at least one message")
	}
	return p, nil
}

func readPosting(queue string, raw json.RawMessage) (p posting, err error) {
	if err := checkQueue(queue); err != nil {
		return p, err
	}
	p.Queue = queue
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return p, request.Errorf("messages.%s is %s; it must be a list of strings", queue, request.Short(raw))
	}
	for i, one := range list {
		m, err := text(fmt.Sprintf("messages.%s[%d]", queue, i), one, math.MaxInt)
		if err != nil {
			return p, err
		}
		p.Messages = append(p.Messages, m)
	}
	return p, nil
}

// readLater reads when messages may be given: after a delay, or from a time on.
func readLater(f *fields) (l later) {
	l.Delay = f.seconds("delay", 0, longestTimeout)
	switch {
	case !f.has("run_at"):
		return l
	case f.has("delay"):
		f.keep(request.Errorf("the request has both delay and run_at; give one of them"))
		return l
	}
	var at string
	err := json.Unmarshal(f.Values["run_at"], &at)
	if err == nil {
		l.At, err = time.Parse(time.RFC3339, at)
	}
	if err != nil || l.At.IsZero() {
		f.keep(request.Errorf("run_at is %s; it must be a time such as 2026-12-31T06:00:00Z", request.Short(f.Values["run_at"])))
	}
	return l
}

// What a pull may ask for.
const (
	longestWait     = 24 * time.Hour
	longestTimeout  = 366 * 24 * time.Hour
	mostQueues      = 100 // in one call
	longestResult   = 64 << 10
	mostRetries     = 1_000_000
	greatestMessage = math.MaxInt64
)

type pullRequest struct {
	receiver string
	timeout  time.Duration
	wants    []wanted // by queue
	results  []result
	refused  []string // what is wrong with the other results
}

// readPull reads the body of POST /pull.
func readPull(body []byte, d Defaults) (p pullRequest, err error) {
	f := fieldsOf("the request", "", body, "receiver", "timeout", "queues", "results")
	p.receiver = f.text("receiver")
	f.keep(checkReceiver(p.receiver))
	p.timeout = f.seconds("timeout", d.Timeout, longestWait)
	if f.err != nil {
		return p, f.err
	}
	if p.wants, err = readWants(f.Values["queues"], d); err != nil {
		return p, err
	}
	if p.results, p.refused, err = readResults(f.Values["results"]); err != nil {
		return p, err
	}
	if len(p.wants) == 0 && len(p.results)+len(p.refused) == 0 {
		return p, request.Errorf("the request is empty: name queues, or give results")
	}
	return p, nil
}

func readWants(raw json.RawMessage, d Defaults) (wants []wanted, err error) {
	queues, err := request.Object("queues", raw)
	if err != nil {
		return nil, err
	}
	if len(queues.Names) > mostQueues {
		return nil, request.Errorf("queues names %d queues; it may name %d", len(queues.Names), mostQueues)
	}
	slices.Sort(queues.Names)
	for _, queue := range queues.Names {
		if err := checkQueue(queue); err != nil {
			return nil, err
		}
		w, err := readWant(queue, queues.Values[queue], d)
		if err != nil {
			return nil, err
		}
		wants = append(wants, w)
	}
	return wants, nil
}

func readWant(queue string, raw json.RawMessage, d Defaults) (wanted, error) {
	what := "queues." + queue
	f := fieldsOf(what, what+".", raw, "start", "max", "retry_num", "fail_timeout")
	w := wanted{
		Queue:       queue,
		Start:       f.number("start", 0, onlyNew, greatestMessage),
		Max:         int(f.number("max", int64(d.Max), 1, math.MaxInt32)),
		RetryNum:    int(f.number("retry_num", int64(d.RetryNum), 0, mostRetries)),
		FailTimeout: f.seconds("fail_timeout", d.FailTimeout, longestTimeout),
	}
	return w, f.err
}

// readResults reads the results that can be saved, and says why the others cannot.
func readResults(raw json.RawMessage) (results []result, refused []string, err error) {
	queues, err := request.Object("results", raw)
	if err != nil {
		return nil, nil, err
	}
	for _, queue := range queues.Names {
		err := checkQueue(queue)
		var f request.Fields
		if err == nil {
			f, err = request.Object("results."+queue, queues.Values[queue])
		}
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		for _, name := range f.Names {
			r, err := readResult(queue, name, f.Values[name])
			if err != nil {
				refused = append(refused, err.Error())
				continue
			}
			results = append(results, r)
		}
	}
	return results, refused, nil
}

// readResult reads a result as NQ's client sends it: null is no result, and a number or
// boolean is kept as it is written.
func readResult(queue, name string, raw json.RawMessage) (r result, err error) {
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil || id < 1 {
		return r, request.Errorf("results.%s has a key %s, which is not the id of a message", queue, request.Quote(name))
	}
	r = result{Queue: queue, Message: id}
	what := fmt.Sprintf("results.%s.%d", queue, id)
	switch raw[0] {
	case 'n':
		r.None = true
	case '"':
		r.Text, err = text(what, raw, longestResult)
	case '[', '{':
		err = request.Errorf("%s is %s; it must be a string, a number, true, false or null", what, request.Short(raw))
	default:
		if r.Text = string(raw); len(r.Text) > longestResult {
			err = request.Errorf("%s is %d bytes long; it may be %d", what, len(r.Text), longestResult)
		}
	}
	return r, err
}

// checkReceiver refuses what cannot be the name of a receiver.
func checkReceiver(name string) error {
	if name == "" || len(name) > longestName || strings.ContainsFunc(name, unicode.IsControl) {
		return request.Errorf("receiver must be a name of 1 to %d bytes, without control characters", longestName)
	}
	return nil
}
