package queue

import "testing"

// A server that does not know the setting would not start.
func TestOnlyNewServersSyncAlways(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"nats-server: v2.9.10": false, "nats-server: v2.10.0": true, "nats-server: v2.11.4": true,
		"nats-server: v3.0.1": true, "nats-server: v2": false, "": false,
	} {
		if got := natsCanSyncAlways(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
