package nsqcompat

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// wellFormed refuses text that would be stored as something else than it is.
func wellFormed(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return bad("the request is not valid UTF-8")
	case hasLoneSurrogate(body):
		return bad("the request has half of a surrogate pair, which is no character")
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
			code, _ = strconv.ParseUint(string(body[i+1:i+5]), 16, 32) // what is no number is refused by the decoder
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
		return bad("the queue name %s must be 1 to 255 letters, digits and . _ @ : / - and begin with no _", short(json.RawMessage(strconv.Quote(name))))
	}
	return nil
}

// text reads a JSON string.
func text(what string, raw json.RawMessage, most int) (string, error) {
	if raw == nil {
		return "", bad("%s is missing; it must be a string", what)
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", bad("%s is %s; it must be a string", what, short(raw))
	}
	switch {
	case strings.ContainsRune(*s, 0):
		return "", bad("%s has a character U+0000 in it, which cannot be stored", what)
	case len(*s) > most:
		return "", bad("%s is %d bytes long; it may be %d", what, len(*s), most)
	}
	return *s, nil
}

// postRequest is what one call posts, and when it is to be given.
type postRequest struct {
	sender   *string
	postings []Posting
	later    Later
}

// readPost reads the body of POST /post.
func readPost(body []byte) (p postRequest, err error) {
	all, err := record("the request", body, "sender", "messages", "delay", "run_at")
	if err != nil {
		return p, err
	}
	if raw := all.values["sender"]; !isNull(raw) {
		s, err := text("sender", raw, longestName)
		if err != nil {
			return p, err
		}
		p.sender = &s
	}
	if p.later, err = readLater(all); err != nil {
		return p, err
	}
	lists, err := object("messages", all.values["messages"])
	if err != nil {
		return p, err
	}
	for _, queue := range lists.names {
		posting, err := readPosting(queue, lists.values[queue])
		if err != nil {
			return p, err
		}
		if len(posting.Messages) > 0 {
			p.postings = append(p.postings, posting)
		}
	}
	if len(p.postings) == 0 {
		return p, bad("there is nothing to post: messages must have a queue with a message in it")
	}
	return p, nil
}

func readPosting(queue string, raw json.RawMessage) (p Posting, err error) {
	if err := checkQueue(queue); err != nil {
		return p, err
	}
	p.Queue = queue
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return p, bad("messages.%s is %s; it must be a list of strings", queue, short(raw))
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

// readLater reads when messages are to be given: after a delay, or from a time on.
func readLater(all fields) (l Later, err error) {
	if l.Delay, err = seconds("delay", all.values["delay"], 0, longestTimeout); err != nil || isNull(all.values["run_at"]) {
		return l, err
	}
	if !isNull(all.values["delay"]) {
		return l, bad("the request has both delay and run_at; give one of them")
	}
	var at string
	if json.Unmarshal(all.values["run_at"], &at) == nil {
		l.At, err = time.Parse(time.RFC3339, at)
	}
	if err != nil || l.At.IsZero() {
		return l, bad("run_at is %s; it must be a time such as 2026-12-31T06:00:00Z", short(all.values["run_at"]))
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
	onlyNew         = -2 // the least that start may be
	greatestMessage = math.MaxInt64
)

// Defaults are what a pull asks for that does not say it.
type Defaults struct {
	Timeout     time.Duration // how long it waits
	Max         int           // messages of each queue
	RetryNum    int
	FailTimeout time.Duration
}

// NQDefaults are those of NQ.
func NQDefaults() Defaults {
	return Defaults{Timeout: time.Minute, Max: 1, RetryNum: 2, FailTimeout: 2 * time.Minute}
}

type pullRequest struct {
	receiver string
	timeout  time.Duration
	wants    []Want // by queue
	results  []Result
	refused  []string // what is wrong with the other results
}

// readPull reads the body of POST /pull.
func readPull(body []byte, d Defaults) (p pullRequest, err error) {
	all, err := record("the request", body, "receiver", "timeout", "queues", "results")
	if err != nil {
		return p, err
	}
	if p.receiver, err = text("receiver", all.values["receiver"], longestName); err != nil {
		return p, err
	}
	if err := checkReceiver(p.receiver); err != nil {
		return p, err
	}
	if p.timeout, err = seconds("timeout", all.values["timeout"], d.Timeout, longestWait); err != nil {
		return p, err
	}
	if p.wants, err = readWants(all.values["queues"], d); err != nil {
		return p, err
	}
	if p.results, p.refused, err = readResults(all.values["results"]); err != nil {
		return p, err
	}
	if len(p.wants) == 0 && len(p.results)+len(p.refused) == 0 {
		return p, bad("there is nothing to do: name queues, or give results")
	}
	return p, nil
}

func readWants(raw json.RawMessage, d Defaults) (wants []Want, err error) {
	queues, err := object("queues", raw)
	if err != nil {
		return nil, err
	}
	if len(queues.names) > mostQueues {
		return nil, bad("queues names %d queues; it may name %d", len(queues.names), mostQueues)
	}
	slices.Sort(queues.names)
	for _, queue := range queues.names {
		if err := checkQueue(queue); err != nil {
			return nil, err
		}
		w, err := readWant(queue, queues.values[queue], d)
		if err != nil {
			return nil, err
		}
		wants = append(wants, w)
	}
	return wants, nil
}

func readWant(queue string, raw json.RawMessage, d Defaults) (w Want, err error) {
	what := "queues." + queue
	f, err := record(what, raw, "start", "max", "retry_num", "fail_timeout")
	if err != nil {
		return w, err
	}
	w.Queue = queue
	if w.Start, err = number(what+".start", f.values["start"], 0, onlyNew, greatestMessage); err != nil {
		return w, err
	}
	most, err := number(what+".max", f.values["max"], int64(d.Max), 1, math.MaxInt32)
	if err != nil {
		return w, err
	}
	retries, err := number(what+".retry_num", f.values["retry_num"], int64(d.RetryNum), 0, mostRetries)
	if err != nil {
		return w, err
	}
	w.FailTimeout, err = seconds(what+".fail_timeout", f.values["fail_timeout"], d.FailTimeout, longestTimeout)
	w.Max, w.RetryNum = int(most), int(retries)
	return w, err
}

// readResults reads the results that can be saved, and says of the others why not.
func readResults(raw json.RawMessage) (results []Result, refused []string, err error) {
	queues, err := object("results", raw)
	if err != nil {
		return nil, nil, err
	}
	for _, queue := range queues.names {
		err := checkQueue(queue)
		var f fields
		if err == nil {
			f, err = object("results."+queue, queues.values[queue])
		}
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		for _, name := range f.names {
			r, err := readResult(queue, name, f.values[name])
			if err != nil {
				refused = append(refused, err.Error())
				continue
			}
			results = append(results, r)
		}
	}
	return results, refused, nil
}

// readResult reads a result as NQ's client sends it, which is what a handler has
// returned: null is none, and a number or a truth value is kept as it is written.
func readResult(queue, name string, raw json.RawMessage) (r Result, err error) {
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil || id < 1 {
		return r, bad("results.%s has a key %s, which is no message's id", queue, short(json.RawMessage(strconv.Quote(name))))
	}
	r = Result{Queue: queue, Message: id}
	what := fmt.Sprintf("results.%s.%d", queue, id)
	switch raw[0] {
	case 'n':
		r.None = true
	case '"':
		r.Text, err = text(what, raw, longestResult)
	case '[', '{':
		err = bad("%s is %s; it must be a string, a number, true, false or null", what, short(raw))
	default:
		if r.Text = string(raw); len(r.Text) > longestResult {
			err = bad("%s is %d bytes long; it may be %d", what, len(r.Text), longestResult)
		}
	}
	return r, err
}
