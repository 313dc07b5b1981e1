package progress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/registry"
)

// Measure is what the time of a stage depends on most.
type Measure string

// The measures.
const (
	Unmeasured Measure = ""      // it takes a moment, or one statement, and has no counters
	ByBytes    Measure = "bytes" // and by how many files there are
	ByFiles    Measure = "files" // it reads so little of each that their bytes say nothing
)

// Counters say how far the attempt with a token has come with its stage. They
// are for people: no stage goes by them.
type Counters struct {
	Stage   registry.Stage `json:"stage"`
	Token   int64          `json:"token"` // of the claim that counts
	Elapsed time.Duration  `json:"elapsed"`
	Moved   time.Duration  `json:"moved"` // what Elapsed was when a figure changed last

	Files       int64 `json:"files"`        // finished, those of earlier attempts too
	FilesBefore int64 `json:"files_before"` // by earlier attempts
	FilesTotal  int64 `json:"files_total"`  // to do in all; -1: not known yet
	Bytes       int64 `json:"bytes"`        // likewise, with the finished parts of current files
	BytesBefore int64 `json:"bytes_before"`
	BytesTotal  int64 `json:"bytes_total"`

	Busy         int           `json:"busy"`              // files, or groups of small ones, that are in progress
	CurrentFiles []CurrentFile `json:"in_hand,omitempty"` // the largest of them, at most [MaxCurrentFiles]
}

// CurrentFile is a file in progress, or a group of small ones, named by its first. The key
// of a list of them stays what workers of an earlier version write and read.
type CurrentFile struct {
	Path  string `json:"path"` // of a longer one the beginning
	Files int    `json:"files"`
	Size  int64  `json:"size"` // bytes; -1: not known
	Bytes int64  `json:"bytes"`
}

const (
	// MaxCurrentFiles bounds the list of current files, however many there are.
	MaxCurrentFiles = 8
	// MaxFaults bounds the list of what an attempt failed of.
	MaxFaults = 50
	// mostText bounds a text in a note, in bytes.
	mostText = 600
)

// Fault is one thing that an attempt failed of, as exactly as the stage knew.
type Fault struct {
	Code     string `json:"code"`
	Path     string `json:"path,omitempty"`     // of a file in the bag; "" if no one file is to blame
	Expected string `json:"expected,omitempty"` // "" if nothing was compared
	Found    string `json:"found,omitempty"`
	Message  string `json:"message"`
}

// Faults are what the attempt with a token failed of.
type Faults struct {
	Token int64   `json:"token"`
	List  []Fault `json:"list"`
	More  int     `json:"more"` // that are not in the list
	// Warnings are what was odd as well, and no reason to fail.
	Warnings []Fault `json:"warnings,omitempty"`
}

// noteLua keeps a value with the time that Redis has, the only clock that writer
// and reader share.
const noteLua = `
redis.call('SET', KEYS[3], redis.call('TIME')[1] .. ' ' .. ARGV[3])
redis.call('SADD', KEYS[2], KEYS[3])
return keep()`

// Count keeps how far an attempt has come, in place of what was kept before.
func (s *Store) Count(ctx context.Context, c Claim, counters Counters) error {
	counters.Token = c.Token
	counters.CurrentFiles = counters.CurrentFiles[:min(len(counters.CurrentFiles), MaxCurrentFiles)]
	for i, h := range counters.CurrentFiles {
		counters.CurrentFiles[i].Path = cut(h.Path)
	}
	return s.keepNote(ctx, c, "counters", counters)
}

// Counters returns what was counted of an item last, and how long ago; ok is
// false if nothing is known.
func (s *Store) Counters(ctx context.Context, item int64) (c Counters, age time.Duration, ok bool, err error) {
	age, ok, err = s.note(ctx, item, "counters", &c)
	return c, age, ok, err
}

// Fail keeps what an attempt failed of, in place of what an earlier one did.
func (s *Store) Fail(ctx context.Context, c Claim, faults Faults) error {
	faults.Token = c.Token
	if over := len(faults.List) - MaxFaults; over > 0 {
		faults.List, faults.More = faults.List[:MaxFaults], faults.More+over
	}
	faults.Warnings = faults.Warnings[:min(len(faults.Warnings), MaxFaults)]
	for _, list := range [][]Fault{faults.List, faults.Warnings} {
		for i := range list {
			f := &list[i]
			f.Path, f.Message, f.Expected, f.Found = cut(f.Path), cut(f.Message), cut(f.Expected), cut(f.Found)
		}
	}
	return s.keepNote(ctx, c, "faults", faults)
}

// Faults returns what an item failed of last; ok is false if nothing is known.
func (s *Store) Faults(ctx context.Context, item int64) (f Faults, ok bool, err error) {
	_, ok, err = s.note(ctx, item, "faults", &f)
	return f, ok, err
}

func (s *Store) keepNote(ctx context.Context, c Claim, name string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = s.write(ctx, c, s.keep, s.key(c.Item, "note", name), text)
	}
	if err != nil {
		return fmt.Errorf("note the %s of item %d: %w", name, c.Item, err)
	}
	return nil
}

func (s *Store) note(ctx context.Context, item int64, name string, to any) (age time.Duration, ok bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var value *redis.StringCmd
	var now *redis.TimeCmd
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		value, now = p.Get(ctx, s.key(item, "note", name)), p.Time(ctx)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the %s of item %d: %w", name, item, s.explain(ctx, err))
	}
	at, text, _ := strings.Cut(value.Val(), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err == nil {
		err = json.Unmarshal([]byte(text), to)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the %s of item %d: %w", name, item, err)
	}
	return max(now.Val().Sub(time.Unix(seconds, 0)), 0), true, nil
}

func cut(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText-3], "") + "…"
}
