package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/validate"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// judging are the stages that judge bags, with all that they need.
type judging struct {
	t    *testing.T
	db   *pgxpool.Pool
	deps pipeline.Deps
	in   *storage.Bucket
}

func newJudging(t *testing.T) *judging {
	t.Helper()
	s3, client := testenv.S3(t), storage.NewClient(storage.Options{})
	t.Cleanup(client.Close)
	created := func(name string) *storage.Bucket {
		b, err := client.Bucket(storage.Target{
			Name: name, Bucket: name, Endpoint: s3.Endpoint, Region: s3.Region, CAFile: s3.CAFile, PathStyle: true,
			AccessKeyID: s3.AccessKeyID, SecretAccessKey: storage.Secret(s3.SecretAccessKey),
		})
		if err == nil {
			err = b.Create(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	j := &judging{t: t, db: testenv.Database(t), in: created(s3.Prefix + "receiving")}
	j.deps = pipeline.Deps{
		Registry: registry.New(j.db), Progress: progress.New(testenv.Redis(t), "same"), Files: 2, Log: slog.New(slog.DiscardHandler),
		Receiving: func(string) (*storage.Bucket, error) { return j.in, nil }, Staging: created(s3.Prefix + "staging"),
	}
	if _, err := j.deps.Registry.AddInstitution(t.Context(), registry.Institution{
		Name: "Test", Identifier: "test.edu", ReceivingBucket: s3.Prefix + "receiving", RestoreBucket: s3.Prefix + "restore",
	}); err != nil {
		t.Fatal(err)
	}
	return j
}

// run takes all bags through Receive and Validate.
func (j *judging) run() {
	j.t.Helper()
	if _, err := (&upkeep.BucketReader{Registry: j.deps.Registry, Receiving: j.deps.Receiving, Log: j.deps.Log}).ReadAll(j.t.Context()); err != nil {
		j.t.Fatal(err)
	}
	o := claim.DefaultOptions()
	o.Poll, o.Log = 100*time.Millisecond, j.deps.Log
	engine, err := claim.New(j.t.Context(), j.db, o)
	if err != nil {
		j.t.Fatal(err)
	}
	runner, err := pipeline.NewRunner(engine, j.deps, steps.All(j.deps), pipeline.RunnerOptions{
		Pools: []pipeline.Pool{{Name: "all", Stages: []string{"Receive", "Validate"}, Slots: 2}}, Log: j.deps.Log,
	})
	if err != nil {
		j.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(j.t.Context())
	done := make(chan error)
	go func() { done <- runner.Run(ctx) }()
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		var left int
		err := j.db.QueryRow(ctx, `SELECT count(*) FROM work_items WHERE retry AND stage IN ('Receive', 'Validate')`).Scan(&left)
		if err != nil || time.Now().After(deadline) {
			j.t.Fatalf("%d bags are not judged: %v", left, err)
		}
		if left == 0 {
			break
		}
	}
	stop()
	if err := <-done; err != nil {
		j.t.Fatal(err)
	}
}

// commandSays is what farol validate finds out about a tar.
func commandSays(t *testing.T, path string) (v bag.Verdict, code int) {
	t.Helper()
	c := validate.Command()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{path, "--json"})
	err := c.ExecuteContext(t.Context())
	if e := json.Unmarshal(out.Bytes(), &v); e != nil {
		t.Fatalf("%v, %v: %s", err, e, &out)
	}
	if err != nil {
		code = cli.FailureOf(err).Code
	}
	return v, code
}

// Whatever is wrong with a bag, its item fails of exactly what farol validate lists:
// at Validate, or at Receive if the tar cannot be read to its end.
func TestItemFailsOfWhatValidateLists(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	j, random, dir := newJudging(t), rand.New(rand.NewPCG(seed, 0)), t.TempDir()
	want := map[string]bag.Verdict{}
	for i := range 80 {
		name := fmt.Sprintf("bag-%02d.tar", i)
		if i%20 == 19 {
			name = fmt.Sprintf("bag\x7f%02d.tar", i)
		}
		data := broken(t, random)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		v, code := commandSays(t, path)
		if wants := map[bool]int{true: cli.ExitFailed, false: 0}[!v.Valid]; code != wants && !v.Unknown || v.Unknown && code != cli.ExitUsage {
			t.Errorf("%s: exit code %d for %+v", name, code, v)
		}
		if _, err := j.in.Put(t.Context(), name, bytes.NewReader(data), storage.Upload{Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		want[name] = v
	}
	j.run()
	items, err := j.deps.Registry.WorkItems(t.Context(), registry.ItemFilter{Limit: 100})
	if err != nil || len(items) != len(want) {
		t.Fatalf("%d items, %v", len(items), err)
	}
	kinds := map[string]int{}
	for _, item := range items {
		j.compare(item, want[item.Name])
		kinds[string(item.Stage)+" "+item.ErrorCode]++
	}
	t.Log(kinds)
}

func (j *judging) compare(item registry.WorkItem, v bag.Verdict) {
	j.t.Helper()
	if v.Valid {
		if item.Status != "Pending" || item.Stage != "Reingest Check" {
			j.t.Errorf("%s is valid, and %s at %s: %s", item.Name, item.Status, item.Stage, item.Note)
		}
		for _, w := range v.Warnings {
			if !strings.Contains(item.Note, w.Message) {
				j.t.Errorf("%s: the note %q does not have %q", item.Name, item.Note, w.Message)
			}
		}
		return
	}
	stage, code := registry.Validate, "invalid-bag"
	for _, f := range v.Errors {
		switch f.Code {
		case "not-a-tar", "empty-tar", "tar-truncated", "tar-corrupt", "too-many-files", "illegal-name":
			stage, code = registry.Receive, f.Code
		}
	}
	if v.Unknown {
		code = "manifest-unsupported"
	}
	if item.Status != "Failed" || item.Stage != stage || item.ErrorCode != code {
		j.t.Errorf("%s: %s at %s of %s, want Failed at %s of %s", item.Name, item.Status, item.Stage, item.ErrorCode, stage, code)
	}
	var messages []string
	for _, f := range v.Errors[:min(len(v.Errors), 30)] {
		messages = append(messages, f.Message)
	}
	if note := strings.Join(messages, " | "); item.Note != note && (len(v.Errors) <= 30 || !strings.HasPrefix(item.Note, note)) {
		j.t.Errorf("%s: the note is %q, want %q", item.Name, item.Note, note)
	}
	found, _, err := j.deps.Progress.Faults(j.t.Context(), item.ID)
	if err != nil {
		j.t.Fatal(err)
	}
	got, want := codesAndPaths(found.List), ""
	for _, f := range v.Errors[:min(len(v.Errors), progress.MaxFaults)] {
		want += f.Code + " " + f.Path + "\n"
	}
	if got != want || len(found.List)+found.More != len(v.Errors)+v.More || len(found.Warnings) != min(len(v.Warnings), progress.MaxFaults) {
		j.t.Errorf("%s: kept with the item:\n%s+%d\nwant\n%s+%d", item.Name, got, found.More, want, v.More)
	}
}

func codesAndPaths(list []progress.Fault) (s string) {
	for _, f := range list {
		s += f.Code + " " + f.Path + "\n"
	}
	return s
}

// broken is a bag in which some things are wrong or odd, or nothing.
func broken(t *testing.T, random *rand.Rand) []byte {
	t.Helper()
	s := bagtest.Spec{ManifestsFirst: random.IntN(2) == 0, Manifests: []string{"md5", "sha256"}}
	if random.IntN(4) == 0 {
		s.Profile, s.Manifests = bagtest.BTR, []string{"sha256"}
	}
	faults := faultsOfSpecs()
	for range random.IntN(4) {
		faults[random.IntN(len(faults))](&s)
	}
	data, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	switch random.IntN(10) {
	case 0:
		data = data[:random.IntN(len(data))]
	case 1:
		data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
	case 2:
		data = append(data, data...)
	case 3:
		data = append(data, "and more"...)
	}
	return data
}

func faultsOfSpecs() []func(*bagtest.Spec) {
	entry := func(name string, kind byte) func(*bagtest.Spec) {
		return func(s *bagtest.Spec) {
			s.Entries = append(s.Entries, bagtest.Entry{Name: name, Type: kind, Linkname: map[byte]string{'2': "x"}[kind], Content: map[byte]string{'0': "x"}[kind]})
		}
	}
	tag := func(file, name, value string) func(*bagtest.Spec) {
		return func(s *bagtest.Spec) { s.Tags = append(s.Tags, bagtest.Tag{File: file, Name: name, Value: value}) }
	}
	unlisted := func(path, content string) func(*bagtest.Spec) {
		return func(s *bagtest.Spec) {
			s.Unlisted = append(s.Unlisted, bagtest.File{Path: path, Content: content})
			s.TagManifests = []string{}
		}
	}
	return []func(*bagtest.Spec){
		entry("sample-bag/../x", '0'), entry("sample-bag/link", '2'), entry("other/x", '0'), entry("bagit.txt", '0'), entry("top", '0'), entry("sample-bag/bagit.txt", '0'),
		tag("bagit.txt", "Third", "x"), tag("bagit.txt", "BagIt-Version", "0.97"), tag("bagit.txt", "BagIt-Version", "2.0"), tag("bagit.txt", "BagIt-Version", bagtest.Omit),
		tag("bagit.txt", "Tag-File-Character-Encoding", "UTF-9"), tag("aptrust-info.txt", "Access", "Nobody"), tag("aptrust-info.txt", "AAA", strings.Repeat("x", 1<<20)),
		tag("bag-info.txt", "AAA", strings.Repeat("x", 1<<20)), tag("bag-info.txt", "Payload-Oxum", "1.1"), tag("bag-info.txt", "Odd", "a\x01b"),
		tag("aptrust-info.txt", "Storage-Option", "Wasabi-TX"),
		tag("bag-info.txt", "BagIt-Profile-Identifier", "https://example.org/aptrust-v2.2.json"), tag("bag-info.txt", "BagIt-Profile-Identifier", "https://example.org/none.json"),
		unlisted("manifest-sha1.txt", "no line\n"), unlisted("manifest-sha1.txt", strings.Repeat("not good\n", 1100)), unlisted("manifest-sha224.txt", "x"),
		unlisted("manifest-sha512.txt", strings.Repeat("a", 70_000)), unlisted("data/stray\u0085.txt", "x"), unlisted("fetch.txt", "x\n"), unlisted("a/B", "x"), unlisted("a/b", "y"),
		func(s *bagtest.Spec) { s.Leave = append(s.Leave, "data/hello.txt") },
		func(s *bagtest.Spec) { s.Leave = append(s.Leave, "bagit.txt") },
		func(s *bagtest.Spec) { s.Corrupt = append(s.Corrupt, "data/folder/noise.bin") },
		func(s *bagtest.Spec) { s.Corrupt = append(s.Corrupt, "bag-info.txt") },
	}
}
