package setup_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/setup"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// target is a bucket of the test's own on the real server.
func target(t *testing.T, name string) storage.Target {
	t.Helper()
	s := testenv.S3(t)
	return storage.Target{
		Bucket: s.Prefix + name, Endpoint: s.Endpoint, Region: s.Region, CAFile: s.CAFile, PathStyle: true,
		AccessKeyID: s.AccessKeyID, SecretAccessKey: storage.Secret(s.SecretAccessKey),
	}
}

func open(t *testing.T, at storage.Target) *storage.Bucket {
	t.Helper()
	client := storage.NewClient(storage.Options{})
	t.Cleanup(client.Close)
	return must.Get(client.Bucket(at))(t)
}

func put(t *testing.T, b *storage.Bucket, key, content string) {
	t.Helper()
	must.Get(b.Put(t.Context(), key, strings.NewReader(content), storage.Upload{Size: int64(len(content))}))(t)
}

func versions(t *testing.T, b *storage.Bucket, prefix string) (all []storage.Version) {
	t.Helper()
	for v, err := range b.Versions(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func protection(t *testing.T, b *storage.Bucket) setup.Protection {
	t.Helper()
	return must.Get(setup.ProtectionOf(t.Context(), b.Conn()))(t)
}

// A bucket is made once, and one that is there stays as it is.
func TestABucketIsMadeOnce(t *testing.T) {
	t.Parallel()
	b := open(t, target(t, "made"))
	for _, want := range []bool{true, false} {
		if made, err := setup.Make(t.Context(), b.Conn(), false); err != nil || made != want {
			t.Errorf("Make = %v, %v, want %v", made, err, want)
		}
	}
	if made, err := setup.Make(t.Context(), b.Conn(), true); err != nil || made || protection(t, b) != (setup.Protection{}) {
		t.Errorf("Make with a lock = %v, %v; it has %+v", made, err, protection(t, b))
	}
	if err := setup.EnableVersions(t.Context(), b.Conn()); err != nil || protection(t, b) != (setup.Protection{Versions: true}) {
		t.Errorf("EnableVersions: %v; it has %+v", err, protection(t, b))
	}
	put(t, b, "k", "old")
	put(t, b, "k", "new")
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
	b := open(t, at)
	if made, err := setup.Make(t.Context(), b.Conn(), true); err != nil || !made {
		t.Fatalf("Make = %v, %v", made, err)
	}
	if got := protection(t, b); got != (setup.Protection{Versions: true, Lock: true}) {
		t.Errorf("a new bucket has %+v", got)
	}
	must.Do(t, setup.SetRetention(t.Context(), b.Conn(), "GOVERNANCE", 30))
	if got := protection(t, b); got != (setup.Protection{Versions: true, Lock: true, Mode: "GOVERNANCE", Days: 30}) {
		t.Errorf("with a retention it has %+v", got)
	}
	put(t, b, "k", "content")
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
	if made, err := setup.Make(t.Context(), open(t, at).Conn(), false); err != nil || !made {
		t.Errorf("Make = %v, %v", made, err)
	}
	if len(asked) != 2 || !strings.Contains(asked[1], "<LocationConstraint>eu-central-2</LocationConstraint>") {
		t.Errorf("asked with %q", asked)
	}
	asked, at.Region = nil, "us-east-1"
	if _, err := setup.Make(t.Context(), open(t, at).Conn(), false); err == nil || len(asked) == 0 || strings.Contains(strings.Join(asked, ""), "LocationConstraint") {
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
	if err := open(t, at).Create(t.Context()); !errors.Is(err, setup.ErrTaken) || !strings.Contains(err.Error(), at.Bucket) {
		t.Errorf("Create = %v", err)
	}
}
