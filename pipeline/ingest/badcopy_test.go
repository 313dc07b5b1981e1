package ingest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// A copy that is not what it should be is found before anything is recorded, and
// replaced by the good bytes. No other is sent again.
func TestBadCopiesAreFound(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(a *archive, b *storage.Bucket, key string){
		"gone": func(a *archive, b *storage.Bucket, key string) {
			must.Do(a.T, b.Delete(context.Background(), key))
		},
		"other bytes": func(a *archive, b *storage.Bucket, key string) {
			must.Get(b.Put(context.Background(), key, strings.NewReader("bytes"), storage.Upload{Size: 5}))(a.T)
		},
		"other bytes of the same size": func(a *archive, b *storage.Bucket, key string) {
			o := must.Get(b.Head(context.Background(), key))(a.T)
			up := storage.Upload{Size: o.Size, ContentType: o.ContentType, Metadata: o.Metadata}
			must.Get(b.Put(context.Background(), key, strings.NewReader(strings.Repeat("x", int(o.Size))), up))(a.T)
		},
		"another content type": func(a *archive, b *storage.Bucket, key string) {
			a.describeAnew(b, key, func(up *storage.Upload) { up.ContentType = "text/x-other" })
		},
		"no metadata": func(a *archive, b *storage.Bucket, key string) {
			a.describeAnew(b, key, func(up *storage.Upload) { up.Metadata = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.Deposit("sample.tar", a.Sample())
			engine := a.Engine()
			a.UpTo(engine, "Storage Validation")
			target := a.Deps.Targets["Standard-VA"]
			key := a.Keys(target)[7]
			damage(a, target, key)
			before := a.listed(target)
			a.One(engine, "Storage Validation")
			item := a.Item(id)
			if item.Status != "Pending" || item.Stage != "Store" || item.ErrorCode != "bad-copy" || item.Attempt != 0 ||
				!strings.Contains(item.Note, "Standard-VA") || !strings.Contains(item.Note, key) || !strings.Contains(item.Note, "data/") {
				t.Errorf("item = %+v", item)
			}
			a.One(engine, "Store")
			for other, o := range a.listed(target) {
				if was := before[other]; other != key && !o.LastModified.Equal(was.LastModified) {
					t.Errorf("%s was good, and was sent again", other)
				}
			}
			a.Work()
			a.Intact(id)
			a.asItWas(id, truth(t, a.Sample()))
		})
	}
}

// describeAnew leaves an object's bytes and changes what is said of them.
func (a *archive) describeAnew(b *storage.Bucket, key string, change func(*storage.Upload)) {
	a.T.Helper()
	o := must.Get(b.Head(context.Background(), key))(a.T)
	up := storage.Upload{Size: o.Size, ContentType: o.ContentType, Metadata: o.Metadata}
	change(&up)
	must.Get(b.Copy(context.Background(), storage.Source{Bucket: b, Key: key}, key, up, storage.Parts{}))(a.T)
}

// listed returns the objects of a bucket by their keys.
func (a *archive) listed(b *storage.Bucket) map[string]storage.Object {
	a.T.Helper()
	objects := map[string]storage.Object{}
	for o, err := range b.List(context.Background(), "", "") {
		if err != nil {
			a.T.Fatal(err)
		}
		objects[o.Key] = o
	}
	return objects
}

// alter puts other bytes of the same size in place of an object's.
func (a *archive) alter(b *storage.Bucket, key string) {
	a.T.Helper()
	o := must.Get(b.Head(context.Background(), key))(a.T)
	up := storage.Upload{Size: o.Size, ContentType: o.ContentType, Metadata: o.Metadata}
	must.Get(b.Put(context.Background(), key, strings.NewReader(strings.Repeat("x", int(o.Size))), up))(a.T)
}

// A copy that is spoilt each time is stored three times more, and then needs a person,
// who is told which it is and whose requeue has it stored again.
func TestCopyThatIsSpoiltEachTime(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Store")
	target, key := a.Deps.Targets["Standard-VA"], ""
	for round := 1; ; round++ {
		a.One(engine, "Store")
		if key == "" {
			key = a.Keys(target)[3]
		}
		a.alter(target, key)
		a.One(engine, "Storage Validation")
		item := a.Item(id)
		if item.Status == "Suspended" {
			path := pipelinetest.Value[string](a, `SELECT current_file FROM work_item_attempts ORDER BY claim_token DESC LIMIT 1`)
			if round != 4 || item.ErrorCode != "bad-copy" || !strings.Contains(item.Note, "Standard-VA") || !strings.Contains(item.Note, key) ||
				!strings.Contains(item.Note, path) {
				t.Errorf("in round %d: %+v", round, item)
			}
			break
		}
		if item.Stage != "Store" || item.Status != "Pending" || round > 4 {
			t.Fatalf("in round %d: %+v", round, item)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'sent back' AND error_code = 'bad-copy'`); n != 3 {
		t.Errorf("it was sent back %d times, want 3", n)
	}
	a.Exec(`SELECT requeue(1)`)
	a.Work()
	a.Intact(id)
	a.asItWas(id, truth(t, a.Sample()))
}

// A copy whose provider describes it as it should be, and that has other bytes, is
// found if new copies are read, and replaced although its description is right.
// Archived copies are left at that.
func TestNewCopiesAreReadBack(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprint(read), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Deps.ReadBack = read
			id := a.Deposit("sample.tar", a.Sample())
			w := a.Wired()
			direct := a.Bucket(a.Deps.Targets["Standard-VA"].Name())
			engine := a.Engine()
			a.UpTo(engine, "Storage Validation")
			good := a.listed(direct)
			bad := a.Keys(direct)[2:5]
			heads := map[string]http.Header{}
			w.Answers = func(r *http.Response) { // of each, what was said of it first
				if r.Request.Method != http.MethodHead {
					return
				}
				if was, ok := heads[r.Request.URL.Path]; ok {
					for name, values := range was {
						r.Header[name] = values
					}
					return
				}
				heads[r.Request.URL.Path] = r.Header.Clone()
			}
			for _, key := range bad {
				must.Get(a.Deps.Targets["Standard-VA"].Head(context.Background(), key))(t)
				a.alter(direct, key)
			}
			a.One(engine, "Storage Validation")
			if !read {
				if item := a.Item(id); item.Stage != "Record" {
					t.Errorf("item = %+v", item)
				}
				return
			}
			if item := a.Item(id); item.Stage != "Store" || item.ErrorCode != "bad-copy" {
				t.Fatalf("item = %+v", item)
			}
			a.One(engine, "Store")
			for key, o := range a.listed(direct) {
				if o.ETag != good[key].ETag {
					t.Errorf("%s is not what it was at first", key)
				}
			}
			a.Work()
			a.Intact(id)
			a.asItWas(id, truth(t, a.Sample()))
		})
	}
}

// A flipped byte on the way back is not the copy's.
func TestCopyThatIsReadBackWronglyOnceIsGood(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ReadBack = true
	id := a.Deposit("sample.tar", a.Sample())
	w := a.Wired()
	engine := a.Engine()
	a.UpTo(engine, "Storage Validation")
	for i, key := range a.Keys(a.Deps.Targets["Standard-VA"])[:4] {
		w.Next(pipelinetest.Spoilt{Object: "/" + key, At: 10, How: []string{"flip", "cut"}[i%2], Times: 1})
	}
	a.One(engine, "Storage Validation")
	if item := a.Item(id); item.Stage != "Record" || w.Left() > 1 { // one file is empty
		t.Errorf("%d answers were not spoilt; item = %+v", w.Left(), item)
	}
}
