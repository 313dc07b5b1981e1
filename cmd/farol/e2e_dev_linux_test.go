package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// Whatever part of a one-machine stack dies while bags are in progress, every good
// bag is stored and recorded once, and nothing runs on after its end.
func TestDevLosesAnyPartButNoBag(t *testing.T) {
	t.Parallel()
	d := newDevSite(t)
	d.start()
	for _, loss := range []struct {
		name string
		of   func()
	}{
		{"nothing", func() {}},
		{"redis", func() { d.flushRedis() }},
		{"worker", func() { d.killOne("work --max-size") }},
		{"nsqd", func() { d.replaced("internal nsq") }},
		{"postgres", func() { d.replaced("bin/postgres -D") }},
	} {
		d.deposit(devBags(loss.name))
		d.whileRecording(loss.of)
		d.ended(devBags(loss.name))
	}
	d.everythingOnce()
	if n := ask[int](t, d.db, `SELECT count(*) FROM work_item_attempts WHERE outcome IN ('lease expired', 'killed')`); n == 0 {
		t.Error("the killed worker held nothing")
	}

	must.Do(t, d.dev.Process.Signal(syscall.SIGTERM))
	if err := d.dev.wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	d.nothingRuns()

	d.start()
	list := d.farol("item", "list")
	for _, b := range devBags("redis") {
		if !strings.Contains(list, b.spec.Name) {
			t.Errorf("after a restart, %s is not listed:\n%s", b.spec.Name, list)
		}
	}
	d.everythingOnce()
	must.Do(t, d.dev.Process.Kill())
	d.nothingRuns()
}

// devBag is a bag and what must become of it.
type devBag struct {
	spec   bagtest.Spec
	raw    string // deposited as it is, instead of the bag
	status string
	note   string // part of it
	files  int64
	copies int64 // of each
}

// devBags are bags for one round, named after it.
func devBags(round string) []devBag {
	named := func(name string, s bagtest.Spec) bagtest.Spec {
		s.Name = round + "-" + name
		return s
	}
	return []devBag{
		{spec: named("tides", bagtest.Spec{Files: append(pages("data/tides/page", 30), random("data/tides/scan.bin", 6<<20, 1))}), status: "Success", note: "Ingest complete", files: 33, copies: 2},
		{spec: named("horns", bagtest.Spec{Profile: bagtest.BTR, StorageOption: "Wasabi-VA"}), status: "Success", note: "Ingest complete", files: 5, copies: 1},
		{spec: named("buoys", bagtest.Spec{
			StorageOption: "Glacier-Deep-OR", Access: "Consortia", Manifests: []string{"md5", "sha512"},
			Files: []bagtest.File{{Path: "data/empty"}, text("data/Ilhéu de Cima/façade 1.txt"), random("data/photo.tiff", 300_000, 2)},
		}), status: "Success", note: "Ingest complete", files: 5, copies: 1},
		{spec: named("torn", bagtest.Spec{Files: pages("data/log", 4), Corrupt: []string{"data/log-003.txt"}}), status: "Failed", note: "data/log-003.txt"},
		{spec: named("stray", bagtest.Spec{Unlisted: []bagtest.File{text("data/stowaway.txt")}}), status: "Failed", note: "data/stowaway.txt"},
		{spec: named("noise", bagtest.Spec{}), raw: strings.Repeat("not a tar ", 500), status: "Failed", note: "tar"},
	}
}

// devSite is a farol dev in a directory of its own, seen from outside.
type devSite struct {
	*site
	root string // holds all that the processes of the stack run in
	dev  *process
}

func newDevSite(t testing.TB) *devSite {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "farol-dev-") //nolint:usetesting // PostgreSQL's user may not pass through t.TempDir
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &devSite{root: root, site: &site{t: t, binary: devProgram(t), client: storage.NewClient(storage.Options{})}}
	t.Cleanup(d.client.Close)
	t.Cleanup(func() {
		d.nothingRuns()
		if t.Failed() {
			return // for the person who reads the failure
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return d
}

// devProgram is farol, with farol-dev in the same directory.
func devProgram(t testing.TB) string {
	t.Helper()
	testenv.DevBinary(t)
	return testenv.Binary(t)
}

// start starts farol dev, waits until it says that it is up, and connects.
func (d *devSite) start() {
	d.t.Helper()
	d.dev = startProcess(d.t, d.binary, d.root, workerSettings(), "dev", "--data", "data", "--empty")
	d.dev.eventually("farol dev to be up", func() bool { return strings.Contains(d.dev.said(), "Farol is up after") })
	d.settings = sourced(d.t, filepath.Join(d.root, "data", "env"))
	d.connect(d.settings["FAROL_DATABASE_URL"], d.settings["FAROL_REDIS_URL"])
}

// sourced reads a file of "export NAME='value'" lines.
func sourced(t testing.TB, path string) map[string]string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	settings := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if !ok {
			t.Fatalf("%s has the line %q", path, line)
		}
		settings[name] = strings.Trim(value, "'")
	}
	return settings
}

func (d *devSite) deposit(bags []devBag) {
	d.t.Helper()
	uploads := map[string][]byte{}
	for _, b := range bags {
		tar := []byte(b.raw)
		if b.raw == "" {
			var err error
			if tar, err = b.spec.Bytes(); err != nil {
				d.t.Fatal(err)
			}
		}
		uploads[b.spec.Name+".tar"] = tar
	}
	client := plainS3(d.t, d.settings)
	for key, tar := range uploads {
		putPlainly(d.t, client, "aptrust.receiving.test.edu", key, bytes.NewReader(tar))
	}
}

// whileRecording lets something happen while a bag is being put on record.
func (d *devSite) whileRecording(happen func()) {
	d.t.Helper()
	release := d.holdEnd("Record")
	d.dev.eventually("a bag to be recorded", d.someoneWaits)
	happen()
	release()
}

func (d *devSite) flushRedis() {
	d.t.Helper()
	must.Do(d.t, d.redis.FlushAll(d.t.Context()).Err())
}

// running lists the processes of the stack whose command line has the words.
func (d *devSite) running(words string) (pids []int) {
	d.t.Helper()
	for pid, line := range d.processes() {
		if strings.Contains(line, words) && !strings.Contains(line, "internal guard") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killOne kills the only process whose command line has the words.
func (d *devSite) killOne(words string) (pid int) {
	d.t.Helper()
	var pids []int
	d.dev.eventually("exactly one "+words, func() bool { // a child just forked looks like its parent
		pids = d.running(words)
		return len(pids) == 1
	})
	must.Do(d.t, syscall.Kill(pids[0], syscall.SIGKILL))
	return pids[0]
}

// replaced kills a server and waits until another one has taken its place and
// the database answers.
func (d *devSite) replaced(words string) {
	d.t.Helper()
	old := d.killOne(words)
	d.dev.eventually("another "+words, func() bool {
		pids := d.running(words)
		return len(pids) == 1 && pids[0] != old
	})
	d.connect(d.settings["FAROL_DATABASE_URL"], d.settings["FAROL_REDIS_URL"])
	d.dev.eventually("the database", func() bool { return d.registry.Ping(d.t.Context()) == nil })
}

// ended waits until the bags have come to an end and compares it.
func (d *devSite) ended(bags []devBag) {
	d.t.Helper()
	type end struct {
		Status        string
		Noted         bool
		Files, Copies int64
	}
	want, got := map[string]end{}, map[string]end{}
	for _, b := range bags {
		name := b.spec.Name + ".tar"
		d.dev.eventually("an end of "+name, func() bool {
			return ask[int](d.t, d.db, `SELECT count(*) FROM work_items WHERE name = $1 AND NOT retry`, name) == 1
		})
		item := d.item(ask[int64](d.t, d.db, `SELECT id FROM work_items WHERE name = $1`, name))
		e := end{Status: string(item.Status), Noted: strings.Contains(item.Note+" "+item.Outcome, b.note)}
		if !e.Noted {
			d.t.Logf("%s: note %q, outcome %q", name, item.Note, item.Outcome)
		}
		if id := item.IntellectualObjectID; id != nil {
			summary := must.Get(d.registry.Summary(d.t.Context(), *id))(d.t)
			e.Files, e.Copies = summary.Files, *summary.Copies
		}
		want[name], got[name] = end{b.status, true, b.files, b.files * b.copies}, e
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Error("ends (-want +got):\n" + diff)
	}
}

// everythingOnce fails the test unless the buckets hold what is on record and
// nothing else, nothing of finished work is left, and nsqd has all messages.
func (d *devSite) everythingOnce() {
	d.t.Helper()
	for _, target := range storage.Targets() {
		recorded := ask[int](d.t, d.db, `SELECT count(DISTINCT key) FROM storage_records WHERE bucket = $1`, target.Bucket)
		if n := len(plainKeys(d.t, d.settings, target.Bucket)); n != recorded {
			d.t.Errorf("%s has %d objects, %d are on record", target.Bucket, n, recorded)
		}
	}
	counts(d.t, d.db, map[string]int{
		`SELECT count(*) FROM storage_records`: ask[int](d.t, d.db, `SELECT count(DISTINCT url) FROM storage_records`),
		`SELECT count(*) FROM checksums`:       4 * ask[int](d.t, d.db, `SELECT count(*) FROM generic_files`),
	})
	ledgerIsSound(d.t, d.db)
	d.dev.eventually("the mirror to publish everything", func() bool {
		return ask[bool](d.t, d.db, `SELECT coalesce(max(r.message_id), 0) = max(m.id) FROM topic_messages m, topic_readers r`)
	})
}

// processes are the command lines of what runs below the root, by process.
func (d *devSite) processes() map[int]string {
	d.t.Helper()
	links := must.Get(filepath.Glob("/proc/[0-9]*/cwd"))(d.t)
	found := map[int]string{}
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || cwd != d.root && !strings.HasPrefix(cwd, d.root+"/") {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		if err != nil || len(line) == 0 {
			continue // it has ended
		}
		pid := must.Get(strconv.Atoi(filepath.Base(filepath.Dir(link))))(d.t)
		found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
	}
	return found
}

func (d *devSite) nothingRuns() {
	d.t.Helper()
	var left map[int]string
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(50 * time.Millisecond) {
		if left = d.processes(); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	d.t.Errorf("still running: %v", left)
}

func text(path string) bagtest.File {
	return bagtest.File{Path: path, Content: "This is " + path + ".\n"}
}

func random(path string, size int64, seed uint64) bagtest.File {
	return bagtest.File{Path: path, Size: size, Seed: seed}
}

func pages(prefix string, n int) (files []bagtest.File) {
	for i := range n {
		files = append(files, text(fmt.Sprintf("%s-%03d.txt", prefix, i+1)))
	}
	return files
}
