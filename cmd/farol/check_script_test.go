package main

import (
	"github.com/rogpeppe/go-internal/testscript"
)

// cmdNothing fails unless buckets have no object, no version of one and no unfinished
// upload: nothing BUCKET...
func cmdNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: nothing bucket...")
	}
	ctx, cancel := bounded()
	defer cancel()
	for _, name := range args {
		b, end := scriptBucket(ts, name)
		defer end()
		for o, err := range b.List(ctx, "", "") {
			ts.Fatalf("%s has %q, %v", name, o.Key, err)
		}
		for u, err := range b.OpenUploads(ctx) {
			ts.Fatalf("%s has an unfinished upload of %q, %v", name, u.Key, err)
		}
	}
}
