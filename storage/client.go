package storage

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/setup"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Target is one bucket and the way to it: see [wire.Target].
type Target = wire.Target

// A Secret is a string that does not show itself: see [wire.Secret].
type Secret = wire.Secret

// A Spell is a time in which a store asks for fewer requests: see [wire.Spell].
type Spell = wire.Spell

// A ChecksumMode says what a server can be asked to check and keep: see [wire.ChecksumMode].
type ChecksumMode = wire.ChecksumMode

// The modes; their comments are there too.
const (
	ChecksumAuto   = wire.ChecksumAuto
	ChecksumSHA256 = wire.ChecksumSHA256
	ChecksumETag   = wire.ChecksumETag
)

// lastWrite is how long it may take to clean up after a caller who has been cancelled.
const lastWrite = 10 * time.Second

// Options tune a [Client]. The zero value of a field stands for its default.
type Options struct {
	Concurrency int           // parts in flight in one PutParts or Copy; 4
	IdleConns   int           // connections kept open to each endpoint; 64
	Stall       time.Duration // silence of a connection in use before it is given up; 60 s
	ServerWork  time.Duration // the same while the server copies or assembles; 10 min
	Patience    time.Duration // for a store that answers that requests are to come later; 2 min
	CopyAbove   int64         // bytes above which a copy on the server is made in parts; 5 GiB, S3's limit

	Slow func(Spell) // called when a store asks for fewer requests, and when that is over; must be quick
}

func (o Options) withDefaults() Options {
	o.Concurrency = cmp.Or(o.Concurrency, 4)
	o.IdleConns = cmp.Or(o.IdleConns, 64)
	o.Stall = cmp.Or(o.Stall, 60*time.Second)
	o.ServerWork = cmp.Or(o.ServerWork, 10*time.Minute)
	o.Patience = cmp.Or(o.Patience, wire.Patience)
	if o.Slow == nil {
		o.Slow = func(Spell) {}
	}
	o.CopyAbove = cmp.Or(o.CopyAbove, 5*gibibyte)
	return o
}

// A Client owns the connections that its buckets share, by endpoint.
type Client struct {
	ability.Stores

	options Options
	pool    *wire.Pool
}

// NewClient returns a client without connections.
func NewClient(o Options) *Client {
	o = o.withDefaults()
	return &Client{options: o, pool: wire.NewPool(o.IdleConns, o.Stall, o.ServerWork, o.Patience, o.Slow)}
}

// Close closes the idle connections. Requests under way are not disturbed.
func (c *Client) Close() { c.pool.Close() }

// Slowdowns counts the answers that asked for fewer requests, by the bucket as a service.
func (c *Client) Slowdowns() map[string]int64 { return c.pool.Slowdowns() }

// A Bucket is one place where objects are.
type Bucket struct {
	conn    *wire.Conn
	options Options
	store   *ability.Store

	versioned  atomic.Pointer[bool] // what the server last said of it; nil before it was asked
	locks      atomic.Pointer[bool] // whether versions may be under Object Lock; nil before it was asked
	lastAnswer atomic.Int64         // when the last request began that the bucket answered, in Unix nanoseconds
	asking     singleflight.Group   // for whether the bucket is there
}

// Bucket returns the bucket of a target. It sends nothing: whether the bucket is
// there and the credentials are good is for [Bucket.Check] to find out. Errors
// are mistakes in the target, or those of reading its CA file.
func (c *Client) Bucket(t Target) (*Bucket, error) {
	b := &Bucket{options: c.options}
	conn, err := c.pool.Conn(t, b.heard, func() { b.store.Detour() })
	if err != nil {
		return nil, err
	}
	b.conn, b.store = conn, c.At(conn.Endpoint.String())
	return b, nil
}

// Create makes the bucket. One that is there already and ours is success.
func (b *Bucket) Create(ctx context.Context) error {
	_, err := setup.Make(ctx, b.conn, false)
	return err
}
