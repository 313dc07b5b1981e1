package main

import (
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/storage"
)

// cmdNothing fails unless buckets have no object, no version of one and no unfinished
// upload: nothing BUCKET...
func cmdNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: nothing bucket...")
	}
	ctx, cancel := bounded()
	defer cancel()
	client := storage.NewClient(storage.Options{})
	defer client.Close()
	for _, name := range args {
		b, err := client.Bucket(settings.S3{
			Endpoint: ts.Getenv("FAROL_S3_ENDPOINT"), CAFile: ts.Getenv("FAROL_S3_CA_FILE"), Region: ts.Getenv("AWS_REGION"),
			AccessKeyID: ts.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: storage.Secret(ts.Getenv("AWS_SECRET_ACCESS_KEY")),
		}.Target(name))
		ts.Check(err)
		for o, err := range b.List(ctx, "", "") {
			ts.Fatalf("%s has %q, %v", name, o.Key, err)
		}
		for u, err := range b.OpenUploads(ctx) {
			ts.Fatalf("%s has an unfinished upload of %q, %v", name, u.Key, err)
		}
	}
}
