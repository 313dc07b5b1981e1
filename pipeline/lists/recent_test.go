package lists

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// What was kept of an item is used by the next claim of the same process, and never once
// another process may have written a list: whatever ends a claim or changes an item moves its
// token by one.
func TestListsAreKeptWhileNobodyElseHasTheItem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &Recent{}
		token, last := int64(1), byte(0) // the item's, and the list that is in staging
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			token++ // the claim
			if rapid.Bool().Draw(t, "ours") {
				r.Enter(claim.Item{ID: 7, Token: token})
				if kept := r.list(7, PlanName).content; kept != nil && kept[0] != last {
					t.Fatalf("list %d is kept, in staging is %d", kept[0], last)
				}
				if rapid.Bool().Draw(t, "writes") {
					last++
					r.put(7, PlanName, []byte{last})
				}
			} else if rapid.Bool().Draw(t, "writes") {
				last++
			}
			token++ // its end
			if rapid.Bool().Draw(t, "by hand") {
				token++
			}
		}
	})
}

// The next stage in the same process reads a list from memory; another process, and one that
// had the item before, reads it from the registry.
func TestListIsReadFromWhereItIsKnownToBe(t *testing.T) {
	t.Parallel()
	a := pipelinetest.New(t, nil)
	ours, theirs := &Recent{}, &Recent{}
	at := func(r *Recent, token int64) *Area {
		r.Enter(claim.Item{ID: 3, Token: token})
		return &Area{
			Bucket: a.Deps.Staging, Registry: a.Deps.Registry, Item: 3, Log: a.Deps.Log, Recent: r,
			Check: func(context.Context) error { return nil }, Leave: a.Leave(3),
		}
	}
	write := func(w *Area, text string) {
		t.Helper()
		must.Do(t, w.Put(t.Context(), PlanName, func(out io.Writer) error {
			_, err := io.WriteString(out, text)
			return err
		}))
	}
	read := func(w *Area) string {
		t.Helper()
		body := must.Get(w.open(t.Context(), PlanName))(t)
		defer body.Close()
		text := must.Get(io.ReadAll(body))(t)
		return string(text)
	}
	write(at(ours, 2), "first")
	if got := read(at(theirs, 4)); got != "first" {
		t.Errorf("another process reads %q", got)
	}
	write(at(theirs, 4), "second")
	if got := read(at(ours, 6)); got != "second" {
		t.Errorf("the process that had the item before reads %q", got)
	}
	a.LoseLists()
	if got := read(at(theirs, 4)); got != "second" {
		t.Errorf("the claim that wrote the list reads %q", got)
	}
}

// What is kept goes with one upload: an item that is given another has nothing.
func TestAnotherUploadHasNothing(t *testing.T) {
	t.Parallel()
	r := &Recent{}
	r.Enter(claim.Item{ID: 3, ETag: "first", Token: 2})
	r.KeepTar(3, []byte("bytes"))
	if r.Enter(claim.Item{ID: 3, ETag: "first", Token: 4}); string(r.Tar(3)) != "bytes" {
		t.Errorf("the next stage finds %q", r.Tar(3))
	}
	if r.Enter(claim.Item{ID: 3, ETag: "second", Token: 6}); r.Tar(3) != nil {
		t.Errorf("another upload finds %q", r.Tar(3))
	}
}

// What is kept is bounded, whatever the number and the size of items.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	r := &Recent{}
	for i := range int64(3 * mostItems) {
		r.Enter(claim.Item{ID: i, Token: 1})
		r.put(i, PlanName, make([]byte, 100_000))
		r.put(i, PlanName, make([]byte, 100_000)) // again
		sum := 0
		for _, one := range r.items {
			for _, list := range one.lists {
				sum += len(list.content)
			}
		}
		if sum != r.bytes || sum > mostKept || len(r.items) > mostItems {
			t.Fatalf("after %d items %d bytes of %d items are kept; %d were counted", i, sum, len(r.items), r.bytes)
		}
	}
	for i := range int64(2 * mostItems) {
		r.Enter(claim.Item{ID: -i - 1, Token: 1}) // without lists
	}
	if len(r.items) > mostItems {
		t.Errorf("%d items are kept", len(r.items))
	}
}

// Bytes come back as they were written, in memory or on disk.
func TestSpilledBytesComeBack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, largestKept, largestKept + 1, 3 * largestKept} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			want := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			s := &spill{}
			defer s.Close()
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 300_000)
				must.Get(s.Write(rest[:n]))(t)
				rest = rest[n:]
			}
			if onDisk := s.file != nil; onDisk != (size > largestKept) || s.size != int64(size) {
				t.Errorf("on disk: %v, size %d", onDisk, s.size)
			}
			var noted fault.Answers
			s.answered(fault.WithAnswers(t.Context(), &noted))
			if noted.Has(fault.Disk) != (size > largestKept) {
				t.Errorf("the disk is noted: %v", noted.Has(fault.Disk))
			}
			got, err := io.ReadAll(fromStart(s))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
}
