package oracle_test

import (
	"archive/tar"
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

var stages = []string{"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup"}

// world is one in which all is as it should be: a bag that succeeded in two copies,
// and an invalid one that failed.
func world() oracle.World {
	sums := map[string]string{"md5": "m", "sha1": "s1", "sha256": "s256", "sha512": "s512"}
	good := oracle.Bag{
		Institution: "test.edu", Bucket: "in", Key: "good.tar", Name: "good", Option: "Standard", Manifests: []string{"md5", "sha256"},
		Files: []oracle.File{
			{Path: "bagit.txt", Size: 5, Digests: sums},
			{Path: "manifest-md5.txt", Size: 5, Digests: sums},
			{Path: "tagmanifest-md5.txt", Size: 5, Digests: sums},
			{Path: "data/a", Size: 5, Digests: sums},
		},
	}
	bad := oracle.Bag{Institution: "test.edu", Bucket: "in", Key: "bad.tar", Name: "bad", Option: "Standard", Wrong: "no Title"}
	w := oracle.World{
		Bags: []oracle.Bag{good, bad},
		Items: []oracle.Item{
			{ID: 1, Bucket: "in", Name: "good.tar", Status: "Success", Stage: "Cleanup"},
			{ID: 2, Bucket: "in", Name: "bad.tar", Status: "Failed", Stage: "Validate"},
		},
		Messages: map[int64][]string{1: stages, 2: stages[:2]}, Topics: stages, Most: map[string]int{}, ByHand: map[int64]int{},
		Files: map[string]oracle.FileRow{"test.edu/good/data/a": {
			Size: 5, Checksums: map[string][]string{"md5": {"m"}, "sha1": {"s1"}, "sha256": {"s256"}, "sha512": {"s512"}},
			Copies: []oracle.Copy{{Target: "VA", Bucket: "va", Key: "k"}, {Target: "OR", Bucket: "or", Key: "k"}},
		}},
		Targets:   map[string][]oracle.Target{"Standard": {{Name: "VA", Bucket: "va"}, {Name: "OR", Bucket: "or"}}},
		Buckets:   map[string][]oracle.Object{"va": {{Key: "k", SHA256: "s256", Size: 5}}, "or": {{Key: "k", SHA256: "s256", Size: 5}}},
		Receiving: map[string][]string{"in": {"bad.tar"}},
		Restored:  []oracle.Restoration{{Item: oracle.Item{ID: 3, Status: "Success", Stage: "Resolve"}, Object: "test.edu/good", Bag: good}},
	}
	at := time.Unix(1_800_000_000, 0)
	for i, stage := range stages {
		w.Most[stage] = 3
		begin := at.Add(time.Duration(i) * time.Second)
		w.Attempts = append(w.Attempts, oracle.Attempt{Item: 1, Token: int64(2 * i), Stage: stage, Number: 1, Worker: "w", Claimed: begin, Ended: begin.Add(time.Second), Outcome: "done"})
	}
	w.Attempts = append(w.Attempts, oracle.Attempt{Item: 2, Token: 1, Stage: "Validate", Number: 1, Worker: "w", Claimed: at, Ended: at, Outcome: "fatal"})
	w.Attempts = append(w.Attempts, oracle.Attempt{Item: 3, Token: 1, Stage: "Requested", Number: 1, Worker: "w", Claimed: at, Ended: at, Outcome: "done"})
	about := func(file, kind string, details ...string) {
		for _, d := range details {
			w.Events = append(w.Events, oracle.Event{Object: "test.edu/good", File: file, Type: kind, Detail: d})
		}
	}
	for _, kind := range []string{"creation", "identifier assignment", "ingestion", "access assignment", "validation"} {
		about("", kind, "x")
	}
	const file = "test.edu/good/data/a"
	about(file, "message digest calculation", "md5:m", "sha1:s1", "sha256:s256", "sha512:s512")
	about(file, "fixity check", "md5:m", "sha256:s256")
	about(file, "identifier assignment", file, "https://va/k")
	about(file, "replication", "https://or/k")
	about(file, "ingestion", "md5:m")
	about(file, "format identification", "text/plain")
	return w
}

func TestAWorldAsItShouldBeIsNotBlamed(t *testing.T) {
	t.Parallel()
	if found := oracle.Judge(world(), oracle.Promise{}); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

// Each wrong world has to be noticed, by the right name.
func TestWrongWorldsAreNoticed(t *testing.T) {
	t.Parallel()
	file := func(w *oracle.World, change func(*oracle.FileRow)) {
		row := w.Files["test.edu/good/data/a"]
		change(&row)
		w.Files["test.edu/good/data/a"] = row
	}
	again := func(w *oracle.World, i int, outcome string, number int) { // an attempt before the i-th
		a := w.Attempts[i]
		a.Token, a.Outcome, a.Number = a.Token-1, outcome, number
		a.Ended = a.Claimed
		w.Attempts = slices.Insert(w.Attempts, i, a)
	}
	for kind, spoil := range map[string]func(*oracle.World){
		"restoration-failed":  func(w *oracle.World) { w.Restored[0].Status = "Failed" },
		"restored-invalid":    func(w *oracle.World) { w.Restored[0].Bag.Wrong = "missing file data/a" },
		"restored-without":    func(w *oracle.World) { w.Restored[0].Bag.Files = nil },
		"restored-a-stranger": func(w *oracle.World) { w.Restored[0].Object = "test.edu/another" },
		"copy-damaged":        func(w *oracle.World) { w.Buckets["or"][0].SHA256 = "another" },
		"copy-missing":        func(w *oracle.World) { w.Buckets["or"] = nil },
		"copy-not-named":      func(w *oracle.World) { w.Buckets["or"] = append(w.Buckets["or"], oracle.Object{Key: "orphan"}) },
		"copy-not-recorded":   func(w *oracle.World) { file(w, func(r *oracle.FileRow) { r.Copies[1].Target = "VA" }) },
		"copies-recorded": func(w *oracle.World) {
			file(w, func(r *oracle.FileRow) {
				r.Copies = append(r.Copies, oracle.Copy{Target: "XX", Bucket: "va", Key: "k"})
			})
		},
		"key-shared":          func(w *oracle.World) { file(w, func(r *oracle.FileRow) { r.Copies = append(r.Copies, r.Copies[0]) }) },
		"wrong-checksum":      func(w *oracle.World) { file(w, func(r *oracle.FileRow) { r.Checksums["md5"] = []string{"n"} }) },
		"wrong-size":          func(w *oracle.World) { file(w, func(r *oracle.FileRow) { r.Size = 6 }) },
		"file-not-recorded":   func(w *oracle.World) { w.Files = nil },
		"file-never-sent":     func(w *oracle.World) { w.Files["test.edu/good/data/b"] = oracle.FileRow{} },
		"event-doubled":       func(w *oracle.World) { w.Events = append(w.Events, w.Events[0]) },
		"events":              func(w *oracle.World) { w.Events = w.Events[1:] },
		"valid-bag-failed":    func(w *oracle.World) { w.Items[0].Status = "Failed" },
		"valid-bag-suspended": func(w *oracle.World) { w.Items[0].Status = "Suspended" },
		"valid-bag-cancelled": func(w *oracle.World) { w.Items[0].Status = "Cancelled" },
		"valid-bag-pending":   func(w *oracle.World) { w.Items[0].Status = "Pending" },
		"invalid-bag-success": func(w *oracle.World) { w.Items[1].Status = "Success" },
		"invalid-bag-recorded": func(w *oracle.World) {
			w.Files["test.edu/bad/data/a"] = oracle.FileRow{}
			w.Bags[1].Files = []oracle.File{{Path: "data/a"}}
		},
		"invalid-bag-deleted": func(w *oracle.World) { w.Receiving = nil },
		"bag-without-item":    func(w *oracle.World) { w.Items = w.Items[:1] },
		"bag-with-two-items":  func(w *oracle.World) { w.Items = append(w.Items, oracle.Item{ID: 3, Bucket: "in", Name: "good.tar"}) },
		"left-in-staging":     func(w *oracle.World) { w.Staging = []string{"1/inventory.jsonl.zst"} },
		"tar-left":            func(w *oracle.World) { w.Receiving["in"] = append(w.Receiving["in"], "good.tar") },
		"attempt-open":        func(w *oracle.World) { w.Attempts[8].Ended = time.Time{} },
		"in-two-hands":        func(w *oracle.World) { w.Attempts[3].Ended = w.Attempts[4].Claimed.Add(time.Millisecond) },
		"attempt-spent":       func(w *oracle.World) { again(w, 5, "transient", 1) },
		"too-many-attempts":   func(w *oracle.World) { w.Attempts[5].Number = 4 },
		"counted-though-held": func(w *oracle.World) { again(w, 5, "held", 1); w.Attempts[6].Number = 2 },
		"stage-not-done":      func(w *oracle.World) { w.Attempts = slices.Delete(w.Attempts, 2, 3) },
		"stage-done-twice":    func(w *oracle.World) { again(w, 2, "done", 1) },
		"messages":            func(w *oracle.World) { w.Messages[1] = append(slices.Clone(stages), stages[0]) },
		"messages-order":      func(w *oracle.World) { w.Messages[1] = append(stages[1:len(stages):len(stages)], stages[0]) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := world()
			spoil(&w)
			found := oracle.Judge(w, oracle.Promise{})
			if !slices.ContainsFunc(found, func(v oracle.Violation) bool { return v.Kind == kind }) {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func TestPromisesAllowWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil   func(*oracle.World)
		promise oracle.Promise
	}{
		"a killed worker": {func(w *oracle.World) {
			w.Attempts[5].Number = 2
			a := w.Attempts[5]
			a.Token, a.Outcome, a.Number, a.Ended = a.Token-1, "killed", 1, a.Claimed
			w.Attempts = slices.Insert(w.Attempts, 5, a)
		}, oracle.Promise{Spends: true}},
		"a clock set back": {func(w *oracle.World) { w.Attempts[3].Ended = w.Attempts[3].Ended.Add(time.Hour) }, oracle.Promise{Clock: true}},
		"begun again after its tar was deleted": {func(w *oracle.World) {
			w.Items[0].Status, w.Items[0].Code, w.ByHand[1] = "Suspended", "bag-gone", 1
		}, oracle.Promise{ByHand: true}},
		"cancelled by a hand": {func(w *oracle.World) {
			w.Items[0].Status, w.ByHand[1] = "Cancelled", 1
			w.Files = nil
			w.Buckets["va"][0].Bag, w.Buckets["or"][0].Bag = "test.edu/good", "test.edu/good"
		}, oracle.Promise{ByHand: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world()
			tt.spoil(&w)
			if found := oracle.Judge(w, tt.promise); len(found) > 0 {
				t.Errorf("with the promise: %+v", found)
			}
			if found := oracle.Judge(w, oracle.Promise{}); len(found) == 0 {
				t.Error("without the promise, nothing was found")
			}
		})
	}
}

func tarOf(t *testing.T, entries [][2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e[0], Size: int64(len(e[1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBagsAreJudged(t *testing.T) {
	t.Parallel()
	valid := func() [][2]string {
		return [][2]string{
			{"b/bagit.txt", "BagIt-Version: 1.0\n"},
			{"b/aptrust-info.txt", "Title: A title\nStorage-Option: Wasabi-OR\n"},
			{"b/data/a", "hello"},
			{"b/manifest-sha256.txt", fmt.Sprintf("%x  data/a\n", sha256.Sum256([]byte("hello")))},
			{"b/tagmanifest-md5.txt", fmt.Sprintf("%x  bagit.txt\n", md5.Sum([]byte("BagIt-Version: 1.0\n")))},
		}
	}
	for name, tt := range map[string]struct {
		change func([][2]string) [][2]string
		cut    int
		wrong  string
	}{
		"valid":             {wrong: ""},
		"damaged":           {change: func(e [][2]string) [][2]string { e[2][1] = "hellp"; return e }, wrong: "wrong digest of data/a"},
		"damaged tag file":  {change: func(e [][2]string) [][2]string { e[0][1] = "BagIt-Version: 2.0\n"; return e }, wrong: "wrong digest of bagit.txt"},
		"missing":           {change: func(e [][2]string) [][2]string { return slices.Delete(e, 2, 3) }, wrong: "missing file data/a"},
		"unlisted":          {change: func(e [][2]string) [][2]string { return append(e, [2]string{"b/data/b", "x"}) }, wrong: "does not list data/b"},
		"no title":          {change: func(e [][2]string) [][2]string { e[1][1] = "Title:\n"; return e }, wrong: "no Title"},
		"no declaration":    {change: func(e [][2]string) [][2]string { return slices.Delete(e, 0, 1) }, wrong: "bagit.txt"},
		"no manifest":       {change: func(e [][2]string) [][2]string { return slices.Delete(e, 3, 4) }, wrong: "no payload manifest"},
		"another directory": {change: func(e [][2]string) [][2]string { e[2][0] = "c/data/a"; return e }, wrong: "outside"},
		"cut":               {cut: 1550, wrong: "not a whole tar"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries := valid()
			if tt.change != nil {
				entries = tt.change(entries)
			}
			data := tarOf(t, entries)
			if tt.cut > 0 {
				data = data[:tt.cut]
			}
			path := filepath.Join(t.TempDir(), "b.tar")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			bag, err := oracle.ReadBag(path, "test.edu", "in", "b.tar")
			if err != nil || (tt.wrong == "") != (bag.Wrong == "") || !strings.Contains(bag.Wrong, tt.wrong) {
				t.Fatalf("wrong: %q, %v; want %q", bag.Wrong, err, tt.wrong)
			}
			if tt.wrong == "" && (bag.Option != "Wasabi-OR" || len(bag.Preserved()) != 2 || bag.Object() != "test.edu/b") {
				t.Errorf("bag = %+v", bag)
			}
		})
	}
}

// What judges Farol must not be of Farol.
func TestTheOracleSharesNoCodeWithFarol(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "github.com/farol-preservation/farol") && name != "github.com/farol-preservation/farol/internal/rigs/oracle" {
			t.Errorf("the oracle imports %s", name)
		}
	}
}
