package registry_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// A request whose server does nothing for a minute is carried out by the next one, and only
// by that: the first may be alive, and slow.
func TestSlowServerLosesItsRequest(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	take := func(want registry.KeyState) registry.Key {
		t.Helper()
		k := registry.Key{Caller: "user 7", Key: "k", Operation: "deletions.request /api/v1/deletions", Request: sha256.Sum256([]byte("body"))}
		state, kept, err := web.TakeKey(t.Context(), &k)
		if err != nil || state != want {
			t.Fatalf("the key is in state %d, want %d: %+v, %v", state, want, kept, err)
		}
		return k
	}
	var carriedOut []string
	carryOut := func(who string, k registry.Key) error {
		return web.As(registry.WithKey(t.Context(), k), ann, func(context.Context) error {
			carriedOut = append(carriedOut, who)
			return nil
		})
	}
	slow := take(registry.KeyNew)
	take(registry.KeyInWork)
	a.exec(`UPDATE idempotency_keys SET at = at - interval '2 minutes'`)
	next := take(registry.KeyNew)
	if err := carryOut("the slow one", slow); err == nil {
		t.Error("the slow server has carried it out")
	}
	if err := web.DropKey(t.Context(), slow); err != nil {
		t.Error(err)
	}
	if err := web.KeepAnswer(t.Context(), slow, registry.Kept{Status: 503, Body: []byte("slow")}); err != nil {
		t.Error(err)
	}
	take(registry.KeyInWork)
	if err := carryOut("the next one", next); err != nil {
		t.Error(err)
	}
	take(registry.KeyLost)
	if err := web.KeepAnswer(t.Context(), next, registry.Kept{Status: 201, Body: []byte("next")}); err != nil {
		t.Error(err)
	}
	take(registry.KeyAnswered)
	if len(carriedOut) != 1 || carriedOut[0] != "the next one" {
		t.Errorf("carried out by %v", carriedOut)
	}
}
