package nsqcompat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// readTime is how long a client may take to send a request.
const readTime = time.Minute

// readBody reads a request whole. Text that is no valid UTF-8 would be stored as
// something else than it is, and is refused.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime)) //nolint:errcheck // where there is none to set, none is needed
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // it may wait as long as it likes for the answer
	switch {
	case !utf8.Valid(body):
		return nil, bad("the request is not valid UTF-8")
	case hasLoneSurrogate(body):
		return nil, bad("the request has half of a surrogate pair, which is no character")
	}
	return body, nil
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

// fields is a JSON object whose keys are kept in their order. A key that is there
// twice is an error: of two lists of messages one would be lost.
type fields struct {
	names  []string
	values map[string]json.RawMessage
}

func (f *fields) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad("%s is no object", short(raw))
	}
	f.values = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad("it is no JSON: %v", err)
		}
		name, _ := t.(string) // the decoder sees to it
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return bad("it is no JSON: %v", err)
		}
		if _, twice := f.values[name]; twice {
			return bad("the key %s is there twice", strconv.Quote(name))
		}
		f.names = append(f.names, name)
		f.values[name] = value
	}
	return nil
}

// object reads a JSON object; what is null or not there is empty.
func object(what string, raw json.RawMessage) (f fields, err error) {
	if isNull(raw) {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		if wrong, ok := err.(wrongRequest); ok { //nolint:errorlint // it is handed through as it is
			return f, bad("%s: %s", what, wrong.text)
		}
		return f, bad("%s is no JSON object: %v", what, err)
	}
	return f, nil
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

// readPost reads the body of POST /post.
func readPost(body []byte) (sender *string, postings []Posting, err error) {
	all, err := object("the request", body)
	if err != nil {
		return nil, nil, err
	}
	if raw := all.values["sender"]; !isNull(raw) {
		s, err := text("sender", raw, longestName)
		if err != nil {
			return nil, nil, err
		}
		sender = &s
	}
	lists, err := object("messages", all.values["messages"])
	if err != nil {
		return nil, nil, err
	}
	for _, queue := range lists.names {
		if err := checkQueue(queue); err != nil {
			return nil, nil, err
		}
		p := Posting{Queue: queue}
		var list []json.RawMessage
		if raw := lists.values[queue]; len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
			return nil, nil, bad("messages.%s is %s; it must be a list of strings", queue, short(lists.values[queue]))
		}
		for i, raw := range list {
			m, err := text(fmt.Sprintf("messages.%s[%d]", queue, i), raw, math.MaxInt)
			if err != nil {
				return nil, nil, err
			}
			p.Messages = append(p.Messages, m)
		}
		if len(p.Messages) > 0 {
			postings = append(postings, p)
		}
	}
	if len(postings) == 0 {
		return nil, nil, bad("there is nothing to post: messages must have a queue with a message in it")
	}
	return sender, postings, nil
}

// What a pull may ask for.
const (
	longestWait     = 24 * time.Hour
	longestTimeout  = 366 * 24 * time.Hour
	mostQueues      = 100 // in one call
	longestResult   = 64 << 10
	mostRetries     = 1_000_000
	defaultWait     = 60 * time.Second
	defaultRetries  = 2
	defaultTimeout  = 120 * time.Second
	newest          = -2 // the least that start may be
	greatestMessage = math.MaxInt64
)

type pullRequest struct {
	receiver string
	timeout  time.Duration
	wants    []Want // by queue
	results  []Result
}

// readPull reads the body of POST /pull.
func readPull(body []byte) (p pullRequest, err error) {
	all, err := object("the request", body)
	if err != nil {
		return p, err
	}
	if p.receiver, err = text("receiver", all.values["receiver"], longestName); err != nil {
		return p, err
	}
	if p.receiver == "" || strings.ContainsFunc(p.receiver, unicode.IsControl) {
		return p, bad("receiver must be a name, without control characters")
	}
	if p.timeout, err = seconds("timeout", all.values["timeout"], defaultWait, longestWait); err != nil {
		return p, err
	}
	if p.wants, err = readWants(all.values["queues"]); err != nil {
		return p, err
	}
	if p.results, err = readResults(all.values["results"]); err != nil {
		return p, err
	}
	if len(p.wants) == 0 && len(p.results) == 0 {
		return p, bad("there is nothing to do: name queues, or give results")
	}
	return p, nil
}

func readWants(raw json.RawMessage) (wants []Want, err error) {
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
		what := "queues." + queue
		f, err := object(what, queues.values[queue])
		if err != nil {
			return nil, err
		}
		w := Want{Queue: queue}
		if w.Start, err = number(what+".start", f.values["start"], 0, newest, greatestMessage); err != nil {
			return nil, err
		}
		most, err := number(what+".max", f.values["max"], 1, 1, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		retries, err := number(what+".retry_num", f.values["retry_num"], defaultRetries, 0, mostRetries)
		if err != nil {
			return nil, err
		}
		if w.FailTimeout, err = seconds(what+".fail_timeout", f.values["fail_timeout"], defaultTimeout, longestTimeout); err != nil {
			return nil, err
		}
		w.Max, w.RetryNum = int(most), int(retries)
		wants = append(wants, w)
	}
	return wants, nil
}

func readResults(raw json.RawMessage) (results []Result, err error) {
	queues, err := object("results", raw)
	if err != nil {
		return nil, err
	}
	for _, queue := range queues.names {
		if err := checkQueue(queue); err != nil {
			return nil, err
		}
		f, err := object("results."+queue, queues.values[queue])
		if err != nil {
			return nil, err
		}
		for _, name := range f.names {
			id, err := strconv.ParseInt(name, 10, 64)
			if err != nil || id < 1 {
				return nil, bad("results.%s has a key %s, which is no message's id", queue, short(json.RawMessage(strconv.Quote(name))))
			}
			result, err := text(fmt.Sprintf("results.%s.%d", queue, id), f.values[name], longestResult)
			if err != nil {
				return nil, err
			}
			results = append(results, Result{queue, id, result})
		}
	}
	return results, nil
}
