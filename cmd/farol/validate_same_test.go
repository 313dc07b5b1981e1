package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/validate"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// judging are the stages that judge bags.
type judging struct{ *pipelinetest.Archive }

// run takes all bags through Receive and Validate.
func (j *judging) run() {
	j.T.Helper()
	must.Get((&upkeep.BucketReader{Registry: j.Deps.Registry, Receiving: j.Deps.Receiving, Log: j.Deps.Log}).ReadAll(j.T.Context()))(j.T)
	_, stop := j.Run(j.Deps, j.Steps(j.Deps), pipeline.RunnerOptions{
		Pools: []pipeline.Pool{{Name: "all", Stages: []string{"Receive", "Validate"}, Slots: 2}},
	})
	testenv.Finally(j.T, "all bags to be judged", func() bool {
		return pipelinetest.Value[int](j, `SELECT count(*) FROM work_items WHERE retry AND stage IN ('Receive', 'Validate')`) == 0
	}, func() int {
		return pipelinetest.Value[int](j, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NOT NULL`)
	})
	stop()
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
	j, random, dir := &judging{pipelinetest.New(t, steps.All)}, rand.New(rand.NewPCG(seed, 0)), t.TempDir()
	want := map[string]bag.Verdict{}
	for i := range 80 {
		name := fmt.Sprintf("bag-%02d.tar", i)
		if i%20 == 19 {
			name = fmt.Sprintf("bag\x7f%02d.tar", i)
		}
		data := broken(t, random)
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, data, 0o600))
		v, code := commandSays(t, path)
		if wants := map[bool]int{true: cli.ExitFailed, false: 0}[!v.Valid]; code != wants && !v.Unknown || v.Unknown && code != cli.ExitUsage {
			t.Errorf("%s: exit code %d for %+v", name, code, v)
		}
		j.PutRaw(name, data)
		want[name] = v
	}
	j.run()
	items, _, err := browse.In(j.Deps.Registry, registry.Everything()).Items(t.Context(), browse.ItemFilter{}, browse.Page{Limit: 100})
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

func (j *judging) compare(item record.WorkItem, v bag.Verdict) {
	j.T.Helper()
	if v.Valid {
		if item.Status != "Pending" || item.Stage != "Reingest Check" {
			j.T.Errorf("%s is valid, and %s at %s: %s", item.Name, item.Status, item.Stage, item.Note)
		}
		for _, w := range v.Warnings {
			if !strings.Contains(item.Note, w.Message) {
				j.T.Errorf("%s: the note %q does not have %q", item.Name, item.Note, w.Message)
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
		j.T.Errorf("%s: %s at %s of %s, want Failed at %s of %s", item.Name, item.Status, item.Stage, item.ErrorCode, stage, code)
	}
	var messages []string
	for _, f := range v.Errors[:min(len(v.Errors), 30)] {
		messages = append(messages, f.Message)
	}
	if note := strings.Join(messages, " | "); item.Note != note && (len(v.Errors) <= 30 || !strings.HasPrefix(item.Note, note)) {
		j.T.Errorf("%s: the note is %q, want %q", item.Name, item.Note, note)
	}
	found, _, err := j.Deps.Progress.Faults(j.T.Context(), item.ID)
	if err != nil {
		j.T.Fatal(err)
	}
	got, want := codesAndPaths(found.List), ""
	for _, f := range v.Errors[:min(len(v.Errors), progress.MaxFaults)] {
		want += f.Code + " " + f.Path + "\n"
	}
	if got != want || len(found.List)+found.More != len(v.Errors)+v.More || len(found.Warnings) != min(len(v.Warnings), progress.MaxFaults) {
		j.T.Errorf("%s: kept with the item:\n%s+%d\nwant\n%s+%d", item.Name, got, found.More, want, v.More)
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
	data := must.Get(s.Bytes())(t)
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
