package upkeep

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// When a bucket is restored, moved or replicated, all of its objects get new times. Bags that
// failed are not tried again because of that; the same bytes are, when another version of
// the bag came in between.
func TestNewTimesOfABucketMakeNoItems(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	bad, good := []byte("x"), a.Bag(bagtest.Spec{Name: "bag"})
	names := []string{"failed.tar", "suspended.tar", "bag.tar"}
	for _, name := range names {
		a.PutRaw(name, bad)
	}
	if n := a.look(a.Deps); n != len(names) {
		t.Fatalf("%d items", n)
	}
	a.Fails(a.byName()["suspended.tar"], "Suspended", "transient", 0)
	a.Work()
	testenv.Scene(t, a.DB, `UPDATE work_items SET bag_date = bag_date - interval '1 hour'`)
	client := a.S3.Client(t)
	for _, name := range names { // onto itself, which changes its time alone
		source, bucket := a.In.ReceivingBucket+"/"+name, a.In.ReceivingBucket
		must.Get(client.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &bucket, Key: &name, CopySource: &source, MetadataDirective: types.MetadataDirectiveReplace}))(t)
	}
	if n := a.look(a.Deps); n != 0 {
		t.Errorf("%d items of bags that failed", n)
	}
	for i, version := range [][]byte{good, bad} {
		a.PutRaw("bag.tar", version)
		if n := a.look(a.Deps); n != 1 {
			t.Fatalf("%d items of version %d", n, i)
		}
		a.Work()
	}
	if ended := pipelinetest.Value[string](a, `SELECT string_agg(status::text, ', ' ORDER BY id) FROM work_items WHERE name = 'bag.tar'`); ended != "Failed, Success, Failed" {
		t.Errorf("the versions ended as %s", ended)
	}
}
