package main

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
)

func TestSchedulesAreShownInWords(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]record.Schedule{
		"running":        {Running: true, Paused: true},
		"paused":         {Paused: true},
		"due":            {Late: time.Second},
		"late by 2h05m":  {Late: 125 * time.Minute},
		"waits":          {},
		"late by 3d00h":  {Late: 72 * time.Hour},
		"late by 1m01s":  {Late: 61 * time.Second},
		"late by 10m00s": {Late: 10 * time.Minute},
	} {
		if got := scheduleState(j); got != want {
			t.Errorf("scheduleState = %q, want %q", got, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"24h": 24 * time.Hour, "15m": 15 * time.Minute, "1h30m": 90 * time.Minute, "1m30s": 90 * time.Second, "200ms": 200 * time.Millisecond,
		"30s": 30 * time.Second, "10m": 10 * time.Minute, "20h": 20 * time.Hour,
	} {
		if got := everyOf(d); got != want {
			t.Errorf("everyOf(%v) = %q, want %q", d, got, want)
		}
	}
	for want, j := range map[string]record.Schedule{
		"3 made": {Result: "3 made"}, "3 made; could not do all: a; b": {Result: "3 made", Error: "a\nb"}, "could not do all: a": {Error: "a"},
	} {
		if got := resultOf(j); got != want {
			t.Errorf("resultOf = %q, want %q", got, want)
		}
	}
}
