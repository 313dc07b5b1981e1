package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/registry"
)

// written is a text of the command line that is recorded for people.
type written struct{ to *string }

func (w written) String() string {
	if w.to == nil {
		return ""
	}
	return *w.to
}

func (w written) Set(text string) error {
	*w.to = registry.CleanText(text)
	return nil
}

func (w written) Type() string { return "string" }

// ReasonFlag adds the flag for the reason of a change.
func ReasonFlag(c *cobra.Command, to *string, help string) {
	c.Flags().Var(written{to}, "reason", help)
}

// SinceOf reads a point in time, or how long ago it was.
func SinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36500 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", time.DateTime, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, Usage(fmt.Errorf("--since is %q", text), "give a time ago such as 90m, 24h or 7d, a date such as 2026-11-02, or a time such as 2026-11-02T15:04:05Z")
}
