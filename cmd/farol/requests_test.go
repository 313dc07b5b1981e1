package main

import (
	"errors"
	"io"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/storage"
)

// cmdFetch takes what was given back as its depositor would: fetch BUCKET KEY FILE.
// ! fetch BUCKET KEY sees that there is nothing.
func cmdFetch(ts *testscript.TestScript, neg bool, args []string) {
	if !neg && len(args) != 3 || neg && len(args) != 2 {
		ts.Fatalf("usage: fetch bucket key file, or ! fetch bucket key")
	}
	ctx, cancel := bounded()
	defer cancel()
	b, end := scriptBucket(ts, args[0])
	defer end()
	if neg {
		if _, err := b.Head(ctx, args[1]); !errors.Is(err, storage.ErrNotFound) {
			ts.Fatalf("%s has %s: %v", args[0], args[1], err)
		}
		return
	}
	body, err := b.Get(ctx, args[1], storage.Range{Length: -1})
	ts.Check(err)
	content, err := io.ReadAll(body)
	ts.Check(errors.Join(err, body.Close()))
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), content, 0o600))
}
