package buckets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/setup"
)

const (
	atOnce     = 8           // buckets
	bucketTime = time.Minute // for one
)

// States of a bucket.
const (
	created  = "created"
	exists   = "exists"
	changed  = "changed" // it was there, and lacked something
	failed   = "failed"
	toCreate = "to create"
	toChange = "to change"
)

// A row is a bucket and what came of it, as farol bucket create prints it.
type row struct {
	For     string `json:"for"`
	Bucket  string `json:"bucket"`
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting"` // that names it
	State   string `json:"state"`
	Has     string `json:"has,omitempty"` // of what was asked for
	Error   string `json:"error,omitempty"`
	Next    string `json:"to_do,omitempty"`
}

var (
	errNoLock  = errors.New("it has no Object Lock")
	errOther   = errors.New("it has another default retention")
	errUploads = errors.New("browsers may not upload to it")
)

// A maker makes buckets.
type maker struct {
	client *storage.Client
	want   setup.Protection // of the buckets of targets
	origin string           // of the pages from which people upload; "": it is not known
	look   bool             // it changes nothing
}

// all makes the buckets, several at once; the order stays.
func (m maker) all(ctx context.Context, places []place) []row {
	m.client = storage.NewClient(storage.Options{})
	defer m.client.Close()
	list := make([]row, len(places))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, p := range places {
		group.Go(func() error {
			list[i] = m.bucket(ctx, p)
			return nil // a failure stops no other
		})
	}
	_ = group.Wait()
	return list
}

func (m maker) bucket(ctx context.Context, p place) row {
	ctx, cancel := context.WithTimeout(ctx, bucketTime)
	defer cancel()
	r := row{For: p.names[0], Bucket: p.target.Bucket, Setting: p.setting, State: exists}
	err := p.err
	if err == nil {
		err = m.satisfy(ctx, p, &r)
	}
	if err != nil {
		r.State, r.Error, r.Next = failed, cli.InWords(err), p.next(err)
	}
	return r
}

// satisfy makes the bucket if it is missing, and then has it do what is asked of it.
func (m maker) satisfy(ctx context.Context, p place, r *row) error {
	b, err := m.client.Bucket(p.target)
	if err != nil {
		return err
	}
	r.URL = strings.TrimSuffix(b.URL(""), "/")
	protects := p.kept && m.want.Versions
	if err := m.create(ctx, b, protects && m.want.Lock, r); err != nil {
		return err
	}
	switch {
	case r.State == toCreate && protects:
		r.Has = inWords(m.want)
	case r.State == toCreate:
	case protects:
		return m.protect(ctx, b, r)
	case p.uploads && m.origin != "":
		return m.allowUploads(ctx, b, r)
	}
	return nil
}

func (m maker) create(ctx context.Context, b *storage.Bucket, lock bool, r *row) error {
	err := b.Check(ctx)
	known := fault.In(err)
	switch {
	case err == nil || !errors.Is(err, storage.ErrDenied):
		return err
	case m.look && known != nil && known.Kind == fault.Missing:
		r.State = toCreate
		return nil
	case m.look:
		return err
	}
	made, err := setup.Make(ctx, b.Conn(), lock)
	switch {
	case err != nil:
		return err
	case made:
		r.State = created
		return nil
	}
	return b.Check(ctx) // it is ours, and was closed to us or has just been made
}

// protect has a bucket keep versions, and have the default retention of its Object Lock. What
// it has of these is never weakened.
func (m maker) protect(ctx context.Context, b *storage.Bucket, r *row) error {
	has, err := setup.ProtectionOf(ctx, b.Conn())
	if err == nil {
		err = m.possible(has)
	}
	if err != nil {
		return err
	}
	will := has
	if will.Versions = true; m.want.Mode != "" {
		will = m.want
	}
	if !has.Versions {
		if err := m.change(r, func() error { return setup.EnableVersions(ctx, b.Conn()) }); err != nil {
			return err
		}
	}
	if has.Mode != will.Mode {
		if err := m.change(r, func() error { return setup.SetRetention(ctx, b.Conn(), will.Mode, will.Days) }); err != nil {
			return err
		}
	}
	r.Has = inWords(will)
	if m.look {
		return nil
	}
	if has, err = setup.ProtectionOf(ctx, b.Conn()); err == nil && has != will {
		err = fmt.Errorf("the store has accepted the request, and the bucket %s", inWords(has))
	}
	return err
}

// possible refuses what a bucket can no longer get.
func (m maker) possible(has setup.Protection) error {
	switch {
	case m.want.Lock && !has.Lock:
		return errNoLock
	case m.want.Mode != "" && has.Mode != "" && (m.want.Mode != has.Mode || m.want.Days != has.Days):
		return fmt.Errorf("%w: %s", errOther, inWords(has))
	}
	return nil
}

// change makes a change to a bucket that may have been there.
func (m maker) change(r *row, do func() error) error {
	if m.look {
		r.State = toChange
		return nil
	}
	if r.State == exists {
		r.State = changed
	}
	return do()
}

// allowUploads lets browsers upload to the bucket.
func (m maker) allowUploads(ctx context.Context, b *storage.Bucket, r *row) error {
	allowed, err := setup.AllowsUploads(ctx, b.Conn(), m.origin)
	if err == nil && !allowed {
		err = m.change(r, func() error { return setup.AllowUploads(ctx, b.Conn(), m.origin) })
	}
	switch {
	case err == nil:
		r.Has = "pages of " + m.origin + " may upload to it"
	case errors.Is(err, storage.ErrUnsupported):
		r.Has = "the store takes no CORS rules, so its own settings say which pages may upload"
	default:
		return fmt.Errorf("%w: %w", errUploads, err)
	}
	return nil
}

// inWords says how a bucket protects its objects.
func inWords(p setup.Protection) string {
	switch {
	case p.Mode != "":
		return fmt.Sprintf("keeps versions, and each object by Object Lock (%s) for %s", strings.ToLower(p.Mode), human.Count(p.Days, "day", "days"))
	case p.Lock:
		return "keeps versions, and has Object Lock without a default retention"
	case p.Versions:
		return "keeps versions"
	}
	return "keeps no versions"
}

// next says what a person can do about a failure.
func (p place) next(err error) string {
	f := cli.FailureOf(err)
	switch {
	case p.err != nil && f.Next != "":
		return f.Next
	case p.err != nil:
		return "check " + p.setting + ", run `farol migrate up`, and run this again"
	case errors.Is(err, errNoLock):
		return "leave --lock out, or name a new bucket in " + p.setting + ": most stores enable Object Lock only when they create a bucket, and some have none"
	case errors.Is(err, errOther):
		return "leave --lock out, ask for what it has, or change it with the tools of the store: " + p.setting + " names the bucket"
	case errors.Is(err, errUploads):
		return "allow PutBucketCORS and GetBucketCORS to the key in " + p.key + ", or add the rule with the tools of the store"
	case errors.Is(err, setup.ErrTaken):
		return "name another bucket in " + p.setting
	case errors.Is(err, storage.ErrDenied):
		return "correct " + p.key + ", or allow these credentials to create and configure the bucket that " + p.setting + " names"
	}
	return "correct " + p.setting + ", or check that the service that " + p.service + " names answers and takes the request"
}
