package pull

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/web/access"
)

// Options say what an API accepts, and how it waits for messages. What is zero has a
// default.
type Options struct {
	MaxBody  int64                                      // bytes of a request; 0 is 4 MiB
	Defaults Defaults                                   // of pulls; all zero: those of NQ
	Caller   func(*http.Request) (access.Caller, error) // identifies callers; nil: everybody may do everything
	Stop     context.Context                            // when it ends, calls that wait are answered; nil never does
	Direct   *pgx.ConnConfig                            // for LISTEN, if the pool leads to a pooler
	NoListen bool                                       // LISTEN is not possible; poll instead
	Poll     time.Duration                              // between two polls; 0 is 5 s, or 1 s without LISTEN
	Log      *slog.Logger                               // nil discards
}

// Defaults are the values that a pull leaves out.
type Defaults struct {
	Timeout     time.Duration // how long it waits
	Max         int           // messages of each queue
	RetryNum    int
	FailTimeout time.Duration
}

// nqDefaults are those of NQ.
func nqDefaults() Defaults {
	return Defaults{Timeout: time.Minute, Max: 1, RetryNum: 2, FailTimeout: 2 * time.Minute}
}

func (o Options) withDefaults() Options {
	if o.MaxBody <= 0 {
		o.MaxBody = 4 << 20
	}
	if o.Defaults == (Defaults{}) {
		o.Defaults = nqDefaults()
	}
	if o.Stop == nil {
		o.Stop = context.Background()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Caller == nil {
		o.Caller = func(*http.Request) (access.Caller, error) { return access.Caller{}, nil }
	}
	return o
}
