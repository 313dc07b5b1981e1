package storage_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/storage"
)

func protection(t *testing.T, b *storage.Bucket) storage.Protection {
	t.Helper()
	p, err := b.Protection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A bucket is made once, and one that is there stays as it is.
func TestABucketIsMadeOnce(t *testing.T) {
	t.Parallel()
	b := open(t, target(t, "made"), storage.Options{})
	for _, want := range []bool{true, false} {
		if made, err := b.Make(t.Context(), false); err != nil || made != want {
			t.Errorf("Make = %v, %v, want %v", made, err, want)
		}
	}
	if made, err := b.Make(t.Context(), true); err != nil || made || protection(t, b) != (storage.Protection{}) {
		t.Errorf("Make with a lock = %v, %v; it has %+v", made, err, protection(t, b))
	}
	if err := b.EnableVersions(t.Context()); err != nil || protection(t, b) != (storage.Protection{Versions: true}) {
		t.Errorf("EnableVersions: %v; it has %+v", err, protection(t, b))
	}
	content := noise(7)
	put(t, b, "k", content)
	put(t, b, "k", noise(8))
	if all := versions(t, b, "k"); len(all) != 2 {
		t.Errorf("versions of an object that was replaced: %+v", all)
	}
	testenv.S3(t).SetVersioning(t, b.Name(), false)
	if got := protection(t, b); got.Versions {
		t.Errorf("a bucket that has ceased to keep versions has %+v", got)
	}
}

// With Object Lock, objects are kept as the default retention says: another client cannot remove
// one.
func TestALockedBucketKeepsItsObjects(t *testing.T) {
	t.Parallel()
	at := target(t, "locked")
	b := open(t, at, storage.Options{})
	if made, err := b.Make(t.Context(), true); err != nil || !made {
		t.Fatalf("Make = %v, %v", made, err)
	}
	if got := protection(t, b); got != (storage.Protection{Versions: true, Lock: true}) {
		t.Errorf("a new bucket has %+v", got)
	}
	if err := b.SetRetention(t.Context(), "GOVERNANCE", 30); err != nil {
		t.Fatal(err)
	}
	if got := protection(t, b); got != (storage.Protection{Versions: true, Lock: true, Mode: "GOVERNANCE", Days: 30}) {
		t.Errorf("with a retention it has %+v", got)
	}
	put(t, b, "k", noise(7))
	kept := versions(t, b, "k")
	_, err := testenv.S3(t).Client(t).DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &at.Bucket, Key: aws.String("k"), VersionId: &kept[0].ID})
	if err == nil || len(versions(t, b, "k")) != 1 {
		t.Errorf("an object that the bucket keeps was deleted: %v", err)
	}
}

// A server that wants to know the region is told it, and the bucket is asked for again.
func TestTheRegionIsNamedToServersThatWantIt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	at := target(t, "region")
	at.Region, at.CAFile = "eu-central-2", ""
	at.Endpoint = testenv.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if asked = append(asked, string(body)); len(body) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `<Error><Code>IllegalLocationConstraintException</Code><Message>The unspecified location constraint is incompatible</Message></Error>`) //nolint:errcheck // the test sees it
		}
	}))
	if made, err := open(t, at, storage.Options{}).Make(t.Context(), false); err != nil || !made {
		t.Errorf("Make = %v, %v", made, err)
	}
	if len(asked) != 2 || !strings.Contains(asked[1], "<LocationConstraint>eu-central-2</LocationConstraint>") {
		t.Errorf("asked with %q", asked)
	}
	asked, at.Region = nil, "us-east-1"
	if _, err := open(t, at, storage.Options{}).Make(t.Context(), false); err == nil || len(asked) == 0 || strings.Contains(strings.Join(asked, ""), "LocationConstraint") {
		t.Errorf("in us-east-1: %v, asked with %q", err, asked)
	}
}

// A name that another account has is said to be taken.
func TestANameOfAnotherAccountIsTaken(t *testing.T) {
	t.Parallel()
	at := target(t, "taken")
	at.CAFile, at.Endpoint = "", testenv.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `<Error><Code>BucketAlreadyExists</Code></Error>`) //nolint:errcheck // the test sees it
	}))
	if err := open(t, at, storage.Options{}).Create(t.Context()); !errors.Is(err, storage.ErrTaken) || !strings.Contains(err.Error(), at.Bucket) {
		t.Errorf("Create = %v", err)
	}
}
