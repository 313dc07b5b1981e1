package testenv

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	soakVar   = "FAROL_TEST_SOAK"
	soakShare = 20 // of a whole soak, a short one does one part in so many

	// SoakWhole is the setting, for the environment of tests, that makes soaks whole.
	SoakWhole = soakVar + "=whole"
	// SoakLine begins the line of a test's log that make soak makes a table of. The
	// count and what was counted follow.
	SoakLine = "soaked: "
)

// Soak is how often a soak test repeats what it does: whole times in make soak,
// and a twentieth of that everywhere else. It may be called before flags are read.
func Soak(whole int) int {
	if os.Getenv(soakVar) == "whole" {
		return whole
	}
	return max(1, whole/soakShare)
}

// Soaked writes down what a soak test has done, for the table of make soak.
func Soaked(t testing.TB, n int, what string) {
	t.Helper()
	t.Logf("%s%d %s", SoakLine, n, what)
}

// setChecks sets how many cases each property of rapid is tried with, unless the
// command line does.
func setChecks() error {
	const whole = 600
	if flag.Lookup("rapid.checks") == nil { // the package has no such test
		return nil
	}
	return flag.Set("rapid.checks", strconv.Itoa(Soak(whole)))
}

// Two times that no test is to measure by: what takes a second here keeps them on a
// machine that is many times slower.
const (
	// Patience is how long a test waits for what has to come before it fails.
	Patience = 3 * time.Minute
	// AtOnce is the most that something takes which waits for nothing. What it would
	// have to wait for must take far longer, or never come.
	AtOnce = time.Minute
)

// Eventually returns once cond holds. It fails the test if that takes more than
// [Patience].
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	Finally(t, what, cond, func() int { return 0 })
}

// Finally is Eventually for what takes a lot of work: it waits for as long as done,
// which counts the work, grows at least once in [Patience].
func Finally(t testing.TB, what string, cond func() bool, done func() int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := done()
	for deadline := time.Now().Add(Patience); !cond(); <-tick.C {
		if time.Now().Before(deadline) {
			continue
		}
		if n := done(); n > last {
			last, deadline = n, time.Now().Add(Patience)
		} else {
			t.Fatalf("gave up after %v: %s", Patience, what)
		}
	}
}
