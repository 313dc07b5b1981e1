package wire

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
)

// Patience is how long a request is repeated to which the store answers that it is to come later.
// S3 says so for minutes while it splits a partition, and to a share of the requests. A store that has
// taken all of them for as long no longer asks.
const Patience = 2 * time.Minute

// A Spell is a time in which a store asked for fewer requests to a bucket.
type Spell struct {
	Service string // the bucket, see [fault.Bucket]
	Said    string // by the first answer that asked for it
	Began   time.Time
	Answers int64     // that asked for it, so far
	Ended   time.Time // zero: not yet
}

// A pace is how fast this process sends requests for one bucket. It is the client-side rate limit of
// the SDK's adaptive mode: a request to come later lowers the rate by three tenths, and answers raise
// it again, up to where it was and beyond. Until the first one nothing waits.
type pace struct {
	service  string
	patience time.Duration
	tell     func(Spell) // when a spell begins and when it is over

	mu      sync.Mutex
	limiter *retry.AdaptiveMode
	spell   Spell // Began is zero: there is none
	last    time.Time
	asked   int64 // in all spells
}

func newPace(service string, patience time.Duration, tell func(Spell)) *pace {
	p := &pace{service: service, patience: patience, tell: tell}
	p.limiter = p.newLimiter()
	return p
}

func (p *pace) newLimiter() *retry.AdaptiveMode {
	return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.Throttles = []retry.IsErrorThrottle{retry.IsErrorThrottleFunc(func(err error) aws.Ternary { return aws.BoolTernary(p.asksPatience(err)) })}
	})
}

// asksPatience reports whether an answer asks for fewer requests. While a store does, each 503 does.
func (p *pace) asksPatience(err error) bool {
	if AsksPatience(err) {
		return true
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	return ok && response.HTTPStatusCode() == http.StatusServiceUnavailable && p.slow()
}

// AsksPatience reports whether a store asks for fewer requests, by the words or the status of its answer:
// to a HEAD, S3 says it in the status line.
func AsksPatience(err error) bool {
	code, _ := Words(err)
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || response.Response == nil || response.Response.Response == nil {
		return fault.AsksPatience(code, 0)
	}
	if strings.HasSuffix(response.Response.Status, " Slow Down") {
		code = "SlowDown"
	}
	return fault.AsksPatience(code, response.HTTPStatusCode())
}

// slow reports whether a spell lasts.
func (p *pace) slow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.spell.Began.IsZero()
}

// wait waits until a request may be sent. ended is to be called with what came of it.
func (p *pace) wait(ctx context.Context) (ended func(error), err error) {
	p.mu.Lock()
	var over Spell
	if !p.spell.Began.IsZero() && time.Since(p.last) > p.patience {
		over, p.spell, p.limiter = p.spell, Spell{}, p.newLimiter()
		over.Ended = p.last
	}
	limiter := p.limiter
	p.mu.Unlock()
	if !over.Began.IsZero() {
		p.tell(over)
	}
	release, err := limiter.GetAttemptToken(ctx)
	if err != nil {
		return nil, err
	}
	return func(err error) {
		_ = release(err) // never fails
		if err != nil && p.asksPatience(err) {
			p.note(err)
		}
	}, nil
}

// note counts an answer that asks for fewer requests.
func (p *pace) note(err error) {
	said, _ := Words(err)
	p.mu.Lock()
	begins := p.spell.Began.IsZero()
	p.last = time.Now()
	if begins {
		p.spell = Spell{Service: p.service, Said: said, Began: p.last}
	}
	p.spell.Answers++
	p.asked++
	spell := p.spell
	p.mu.Unlock()
	if begins {
		p.tell(spell)
	}
}

// Slowdowns counts the answers that asked for fewer requests, by the bucket as a service.
func (p *Pool) Slowdowns() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int64{}
	for _, one := range p.paces {
		one.mu.Lock()
		all[one.service] += one.asked
		one.mu.Unlock()
	}
	return all
}

// A patientRetryer is the standard one for the SDK's own requests, which tries again for longer where the
// store asks for patience.
type patientRetryer struct {
	aws.Retryer

	pace *pace
}

// MaxAttempts is no bound: RetryDelay and GetAttemptToken have them.
func (patientRetryer) MaxAttempts() int { return 0 }

// IsErrorRetryable asks the standard retryer, which does not know the words of all stores.
func (r patientRetryer) IsErrorRetryable(err error) bool {
	return r.pace.asksPatience(err) || r.Retryer.IsErrorRetryable(err)
}

// RetryDelay ends what has failed often enough with its error.
func (r patientRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	if attempt >= Attempts && !r.pace.asksPatience(err) {
		return 0, err
	}
	return r.Retryer.RetryDelay(attempt, err)
}

// GetAttemptToken waits until the request may be sent; it fails with the answer of the store when its
// patience is at an end.
func (r patientRetryer) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	asked, _ := ctx.Value(requestKey{}).(*request)
	if asked != nil && asked.refusal != nil && asked.tries >= Attempts && time.Since(asked.began) > r.pace.patience {
		return nil, asked.refusal
	}
	ended, err := r.pace.wait(ctx)
	if err != nil {
		return nil, err
	}
	return func(err error) error {
		ended(err)
		if asked != nil {
			asked.tries++
			asked.refusal = err
		}
		return nil
	}, nil
}

// request is one of the SDK's, over all its attempts.
type request struct {
	began   time.Time
	tries   int
	refusal error // by which the last attempt ended
}

type requestKey struct{}

// once is for a body that can be sent only once.
type once struct{ patientRetryer }

// MaxAttempts is one.
func (once) MaxAttempts() int { return 1 }

// IsErrorRetryable is of nothing.
func (once) IsErrorRetryable(error) bool { return false }
