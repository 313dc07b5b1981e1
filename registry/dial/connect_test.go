package dial_test

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/registry/dial"
)

// One of several hosts is passed over soon. The only one may be busy with the passwords of hundreds
// of workers that start.
func TestTheOnlyHostHasTimeToAnswer(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://farol@db1:5432/farol":                    20 * time.Second,
		"postgres://farol@db1:5432/farol?sslmode=prefer":     20 * time.Second,
		"postgres://farol@db1:5432,db2:5432/farol":           3 * time.Second,
		"postgres://farol@db1:5432,db1:5433/farol":           3 * time.Second,
		"postgres://farol@db1:5432/farol?connect_timeout=60": time.Minute,
	} {
		config, err := dial.Session(url, "test")
		if err != nil || config.ConnectTimeout != want {
			t.Errorf("%s has %v to answer, want %v (%v)", url, config.ConnectTimeout, want, err)
		}
	}
}
