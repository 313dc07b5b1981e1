package pipeline

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
)

// Whatever happens to a breaker: it opens only for three faults in the window, it
// is probed at least every ten seconds, it never claims all again without a probe
// that succeeded, and it does so soon after the service works.
func TestBreakerOpensAndClosesByItsRules(t *testing.T) {
	t.Parallel()
	bad := &fault.Error{Service: "redis", Kind: fault.Unavailable, Err: errors.New("away")}
	rapid.Check(t, func(t *rapid.T) {
		b := &breaker{service: "redis", state: claim.ServiceOK}
		now := time.Unix(1e9, 0)
		var faults []time.Time
		probed := false // since it tripped last
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			before := b.state
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				faults = append(faults, now)
				b.fault(now, claim.Item{ID: 1}, bad)
			case 1:
				b.ok(now, claim.Item{ID: 7})
			case 2:
				var err error
				if rapid.Bool().Draw(t, "fails") {
					err = bad
				}
				b.probed(now, err)
				probed = probed || err == nil
			case 3:
				b.tried(now)
			case 4:
				if b.state == claim.ServiceTrying {
					b.trial, b.next = 7, now.Add(trialTime)
				}
			}
			recent := 0
			for _, at := range faults {
				if now.Sub(at) <= window {
					recent++
				}
			}
			switch {
			case before == claim.ServiceOK && b.state != claim.ServiceOK && recent < tripAfter:
				t.Fatalf("open after %d faults", recent)
			case before != claim.ServiceOK && b.state == claim.ServiceOK && !probed:
				t.Fatal("closed without a probe")
			case b.state == claim.ServiceFailing && b.next.Sub(now) > longestWait:
				t.Fatalf("the next probe is in %v", b.next.Sub(now))
			}
			if b.state == claim.ServiceFailing {
				probed = false
			}
			if b.state == claim.ServiceOK {
				probed = false
			}
		}
		// The service works from now on.
		back := now
		for b.state != claim.ServiceOK {
			now = now.Add(100 * time.Millisecond)
			if b.state == claim.ServiceFailing && !now.Before(b.next) {
				b.probed(now, nil)
			}
			b.tried(now)
			if now.Sub(back) > longestWait+trialTime+time.Second {
				t.Fatalf("still %s %v after the service came back", b.state, now.Sub(back))
			}
		}
	})
}

// A few faults among many successes are no failure of the service.
func TestBreakerStaysShutWhileMostGoesWell(t *testing.T) {
	t.Parallel()
	b := &breaker{service: "s3:a", state: claim.ServiceOK}
	now := time.Unix(1e9, 0)
	for i := range 1000 {
		now = now.Add(50 * time.Millisecond)
		if i%3 == 0 && i > 3 {
			b.fault(now, claim.Item{ID: 1}, &fault.Error{Service: "s3:a", Kind: fault.Overloaded, Err: errors.New("503")})
		} else {
			b.ok(now, claim.Item{ID: int64(i)})
		}
		if b.state != claim.ServiceOK {
			t.Fatalf("open after %d, of which a third failed", i)
		}
	}
}

// A service that comes and goes fails no item alone, also a moment after it works again; half a
// minute later it does. What was before does not open the breaker again.
func TestServiceThatComesAndGoesFailsNoItemAlone(t *testing.T) {
	t.Parallel()
	b := &breaker{service: "s3:a", state: claim.ServiceOK}
	bad := &fault.Error{Service: "s3:a", Kind: fault.Unavailable, Err: errors.New("500")}
	now := time.Unix(1e9, 0)
	for id := range int64(tripAfter) {
		b.fault(now, claim.Item{ID: 100 + id, Stage: "Store"}, bad)
	}
	for step, item := range map[string]claim.Item{"the same": {ID: 7, Stage: "Store"}, "another": {ID: 7, Stage: "Cleanup"}} {
		b.probed(now.Add(time.Second), nil)
		b.tried(now.Add(time.Second + idleTrial))
		if b.state != claim.ServiceOK || !b.failsOthers(item) {
			t.Errorf("%s step: it is %s and fails others: %t", step, b.state, b.failsOthers(item))
		}
	}
	for i := range 4 {
		now = now.Add(window / 4)
		b.ok(now, claim.Item{ID: 200 + int64(i), Stage: "Store"})
	}
	item := claim.Item{ID: 7, Stage: "Store"}
	now = now.Add(time.Second)
	if b.fault(now, item, bad) || b.failsOthers(item) {
		t.Errorf("half a minute later it is %s and fails others: %t", b.state, b.failsOthers(item))
	}
}
