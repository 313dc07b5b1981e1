package preflight

import (
	"context"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage"
)

// checkEncryption warns of S3 services that are reached over plain HTTP by way of a network. A
// process that starts says so in its log when it opens their buckets.
func (s Surroundings) checkEncryption(context.Context) []Finding {
	shared := *s.S3
	targets := []storage.Target{shared.Target("")}
	if s.Storage != nil {
		targets = append(targets, s.Storage.Targets...)
	}
	var names []string
	for _, t := range targets {
		if name := targetSettings(t, shared).endpoint; len(settings.Unencrypted(t)) > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Finding{warn("s3", "encryption", "plain HTTP to "+strings.Join(settings.Unencrypted(targets...), ", ")+": the bytes and names of files travel unprotected",
		"use https URLs in "+strings.Join(names, ", "))}
}
