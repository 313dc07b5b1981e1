package pull

import (
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

	"github.com/farol-preservation/farol/web/request"
)

// wellFormed refuses text that could not be stored as it is.
func wellFormed(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return request.Errorf("the request is not valid UTF-8")
	case hasLoneSurrogate(body):
		return request.Errorf("the request has half of a surrogate pair, which is not a character")
	}
	return nil
}

// hasLoneSurrogate finds escapes such as \ud800 that stand for no character. Go's
// decoder would put another in their place.
func hasLoneSurrogate(body []byte) bool {
	high := false // the last escape was the first half of a pair, and the second must follow at once
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 >= len(body) {
			if high {
				return true
			}
			continue
		}
		i++
		var code uint64
		if body[i] == 'u' && i+4 < len(body) {
			code, _ = strconv.ParseUint(string(body[i+1:i+5]), 16, 32) // the decoder refuses what is not a number
			i += 4
		}
		low := code >= 0xDC00 && code <= 0xDFFF
		if low != high {
			return true
		}
		high = code >= 0xD800 && code <= 0xDBFF
	}
	return high
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

// readPost reads the body of POST /post.
func readPost(body []byte) (p postRequest, err error) {
	all, err := request.Record("the request", body, "sender", "messages", "delay", "run_at")
	if err != nil {
		return p, err
	}
	if raw := all.Values["sender"]; !request.IsNull(raw) {
		s, err := text("sender", raw, longestName)
		if err != nil {
			return p, err
		}
		p.sender = &s
	}
	if p.later, err = readLater(all); err != nil {
		return p, err
	}
	lists, err := request.Object("messages", all.Values["messages"])
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
func readLater(all request.Fields) (l later, err error) {
	if l.Delay, err = seconds("delay", all.Values["delay"], 0, longestTimeout); err != nil || request.IsNull(all.Values["run_at"]) {
		return l, err
	}
	if !request.IsNull(all.Values["delay"]) {
		return l, request.Errorf("the request has both delay and run_at; give one of them")
	}
	var at string
	if json.Unmarshal(all.Values["run_at"], &at) == nil {
		l.At, err = time.Parse(time.RFC3339, at)
	}
	if err != nil || l.At.IsZero() {
		return l, request.Errorf("run_at is %s; it must be a time such as 2026-12-31T06:00:00Z", request.Short(all.Values["run_at"]))
	}
	return l, nil
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
	all, err := request.Record("the request", body, "receiver", "timeout", "queues", "results")
	if err != nil {
		return p, err
	}
	if p.receiver, err = text("receiver", all.Values["receiver"], longestName); err != nil {
		return p, err
	}
	if err := checkReceiver(p.receiver); err != nil {
		return p, err
	}
	if p.timeout, err = seconds("timeout", all.Values["timeout"], d.Timeout, longestWait); err != nil {
		return p, err
	}
	if p.wants, err = readWants(all.Values["queues"], d); err != nil {
		return p, err
	}
	if p.results, p.refused, err = readResults(all.Values["results"]); err != nil {
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

func readWant(queue string, raw json.RawMessage, d Defaults) (w wanted, err error) {
	what := "queues." + queue
	f, err := request.Record(what, raw, "start", "max", "retry_num", "fail_timeout")
	if err != nil {
		return w, err
	}
	w.Queue = queue
	if w.Start, err = number(what+".start", f.Values["start"], 0, onlyNew, greatestMessage); err != nil {
		return w, err
	}
	most, err := number(what+".max", f.Values["max"], int64(d.Max), 1, math.MaxInt32)
	if err != nil {
		return w, err
	}
	retries, err := number(what+".retry_num", f.Values["retry_num"], int64(d.RetryNum), 0, mostRetries)
	if err != nil {
		return w, err
	}
	w.FailTimeout, err = seconds(what+".fail_timeout", f.Values["fail_timeout"], d.FailTimeout, longestTimeout)
	w.Max, w.RetryNum = int(most), int(retries)
	return w, err
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

// number reads a JSON number that must be whole and within bounds.
func number(what string, raw json.RawMessage, otherwise, least, most int64) (int64, error) {
	if request.IsNull(raw) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		return 0, request.Errorf("%s is %s; it must be a whole number from %d to %d", what, request.Short(raw), least, most)
	}
	return n, nil
}

// seconds reads a JSON number of seconds, which may be a fraction.
func seconds(what string, raw json.RawMessage, otherwise, most time.Duration) (time.Duration, error) {
	if request.IsNull(raw) {
		return otherwise, nil
	}
	var s float64
	if err := json.Unmarshal(raw, &s); err != nil || s < 0 || s > most.Seconds() {
		return 0, request.Errorf("%s is %s; it must be a number of seconds from 0 to %.0f", what, request.Short(raw), most.Seconds())
	}
	return time.Duration(s * float64(time.Second)), nil
}

// checkReceiver refuses what cannot be the name of a receiver.
func checkReceiver(name string) error {
	if name == "" || len(name) > longestName || strings.ContainsFunc(name, unicode.IsControl) {
		return request.Errorf("receiver must be a name of 1 to %d bytes, without control characters", longestName)
	}
	return nil
}
