package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// site is an archive of a test's own, on real servers, and the settings for
// processes that work on it.
type site struct {
	t         testing.TB
	binary    string
	settings  map[string]string
	db        *pgxpool.Pool
	redis     *redis.Client
	progress  *progress.Store
	registry  *registry.Registry
	s3        testenv.S3Server
	client    *storage.Client
	in        record.Institution
	staging   *storage.Bucket
	receiving *storage.Bucket
	targets   map[string]*storage.Bucket
}

func newSite(t testing.TB) *site {
	t.Helper()
	return newSiteIn(t, testenv.DatabaseURL(t))
}

func newSiteIn(t testing.TB, dbURL string) *site {
	t.Helper()
	s := &site{t: t, binary: testenv.Binary(t), s3: testenv.S3(t), targets: map[string]*storage.Bucket{}, client: storage.NewClient(storage.Options{})}
	t.Cleanup(s.client.Close)
	redisURL := testenv.RedisURL(t)
	s.settings = workerSettings()
	for name, value := range map[string]string{
		"FAROL_DATABASE_URL": dbURL, "FAROL_REDIS_URL": redisURL,
		"FAROL_S3_ENDPOINT": s.s3.Endpoint, "FAROL_S3_CA_FILE": s.s3.CAFile, "AWS_REGION": s.s3.Region,
		"AWS_ACCESS_KEY_ID": s.s3.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s.s3.SecretAccessKey,
		"FAROL_STAGING_BUCKET": s.s3.Prefix + "staging",
	} {
		s.settings[name] = value
	}
	s.connect(dbURL, redisURL)
	s.openBuckets()
	return s
}

// connect opens the test's own connections.
func (s *site) connect(dbURL, redisURL string) {
	s.t.Helper()
	db := must.Get(pgxpool.New(s.t.Context(), dbURL))(s.t)
	s.t.Cleanup(db.Close)
	options := must.Get(redis.ParseURL(redisURL))(s.t)
	s.db, s.registry, s.redis = db, registry.New(db), redis.NewClient(options)
	s.progress = progress.New(s.redis, progress.Prefix)
	s.t.Cleanup(func() { s.progress.Close() }) //nolint:errcheck // it was only read
}

// workerSettings make a worker that notices soon, under the race detector too:
// what that maps counts for the limit on the memory of format identification. Its
// children load their signatures at each of the many starts, which takes each a second.
func workerSettings() map[string]string {
	return map[string]string{
		"FAROL_LEASE": "1m", "FAROL_HEARTBEAT": "1s", "FAROL_POLL": "200ms", "FAROL_IDENTIFY_MEMORY": "8589934592", "FAROL_IDENTIFY_WORKERS": "1",
	}
}

func (s *site) openBuckets() {
	s.t.Helper()
	s.staging = s.created(s.s3.Prefix + "staging")
	for _, target := range storage.Targets() {
		name := s.s3.Prefix + target.Bucket
		s.settings[settings.TargetPrefix(target.Name)+"BUCKET"] = name
		s.targets[target.Name] = s.created(name)
	}
	s.in = must.Get(s.registry.AddInstitution(s.t.Context(), record.Institution{
		Name: "Test", Identifier: "test.edu", ReceivingBucket: s.s3.Prefix + "receiving", RestoreBucket: s.s3.Prefix + "restore",
	}))(s.t)
	s.receiving = s.created(s.in.ReceivingBucket)
}

func (s *site) created(name string) *storage.Bucket {
	s.t.Helper()
	b, err := s.client.Bucket(storage.Target{
		Name: name, Bucket: name, Endpoint: s.s3.Endpoint, Region: s.s3.Region, CAFile: s.s3.CAFile, PathStyle: true,
		AccessKeyID: s.s3.AccessKeyID, SecretAccessKey: storage.Secret(s.s3.SecretAccessKey),
	})
	if err == nil {
		err = b.Create(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// s3Proxy puts a proxy between S3 and the processes started from now on; the
// test itself keeps its own way.
func (s *site) s3Proxy() *injure.Proxy {
	s.t.Helper()
	proxy := testenv.NewProxy(s.t, strings.TrimPrefix(s.s3.Endpoint, "https://"))
	s.settings["FAROL_S3_ENDPOINT"] = "https://" + proxy.Addr()
	return proxy
}

func (s *site) deposit(specs ...bagtest.Spec) {
	s.t.Helper()
	for _, spec := range specs {
		tar := must.Get(spec.Bytes())(s.t)
		must.Get(s.receiving.Put(s.t.Context(), spec.Name+".tar", bytes.NewReader(tar), storage.Upload{Size: int64(len(tar))}))(s.t)
	}
	s.farol("read-buckets", "--once")
}

// depositSample deposits a bag with files of all sizes that are treated
// differently, and returns its item.
func (s *site) depositSample() int64 {
	s.t.Helper()
	s.deposit(sampleBag("sample"))
	return ask[int64](s.t, s.db, `SELECT id FROM work_items`)
}

const sampleFiles = 24 // of sampleBag, with its two tag files

func sampleBag(name string) bagtest.Spec {
	files := []bagtest.File{{Path: "data/empty.txt"}, random("data/streamed.bin", 3<<20, 0)}
	for _, letter := range strings.Split("abcdefghij", "") {
		files = append(files, random("data/"+letter+".bin", 15_000, 0)) // read together
	}
	for _, letter := range strings.Split("klmnopqrst", "") {
		files = append(files, random("data/"+letter+".bin", 120_000, 0))
	}
	return bagtest.Spec{Name: name, Files: files}
}

// farol runs a command to its end and returns what it said.
func (s *site) farol(args ...string) string {
	s.t.Helper()
	p := startProcess(s.t, s.binary, s.t.TempDir(), s.settings, args...)
	if err := p.wait(); err != nil {
		s.t.Fatalf("farol %s: %v\n%s", strings.Join(args, " "), err, p.said())
	}
	return p.said()
}

// worker starts a worker process.
func (s *site) worker() *process {
	s.t.Helper()
	return startProcess(s.t, s.binary, s.t.TempDir(), s.settings, "work")
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *site) item(id int64) record.WorkItem {
	s.t.Helper()
	item := must.Get(s.registry.WorkItem(s.t.Context(), id))(s.t)
	return item
}

// finished is how many files the item's present stage has finished, as Redis
// has it.
func (s *site) finished(id int64, stage string) (n int64) {
	s.t.Helper()
	summary := must.Get(s.progress.Summary(s.t.Context(), id))(s.t)
	for pass, files := range summary {
		if name, _, _ := strings.Cut(pass, "@"); name == stage {
			n += files
		}
	}
	return n
}

// atRest waits until there is no item left that a worker would take.
func (s *site) atRest(worker *process) {
	s.t.Helper()
	worker.eventually("all items to be at rest", func() bool {
		return ask[int](s.t, s.db, `SELECT count(*) FROM work_items WHERE retry`) == 0
	})
}

// intact fails the test unless the sample is stored once, recorded once, and
// has left nothing behind.
func (s *site) intact(id int64) {
	s.t.Helper()
	if item := s.item(id); item.Status != "Success" {
		s.t.Errorf("item = %+v", item)
	}
	for name, b := range s.targets {
		want := 0
		if name == "Standard-VA" || name == "Standard-OR" {
			want = sampleFiles
		}
		if n := len(keysOf(s.t, b)); n != want {
			s.t.Errorf("%s has %d objects, want %d", name, n, want)
		}
	}
	for what, b := range map[string]*storage.Bucket{"staging": s.staging, "receiving": s.receiving} {
		if left := keysOf(s.t, b); len(left) != 0 {
			s.t.Errorf("left in %s: %v", what, left)
		}
	}
	if left, err := s.redis.Keys(s.t.Context(), "*").Result(); err != nil || len(left) != 0 {
		s.t.Errorf("left in Redis: %v, %v", left, err)
	}
	counts(s.t, s.db, map[string]int{
		`SELECT count(*) FROM intellectual_objects`: 1,
		`SELECT count(*) FROM generic_files`:        sampleFiles,
		`SELECT count(*) FROM checksums`:            4 * sampleFiles,
		`SELECT count(*) FROM storage_records`:      2 * sampleFiles,
		`SELECT count(*) FROM premis_events`:        11*(sampleFiles-2) + 9*2 + 5,
		`SELECT count(*) FROM topic_messages`:       len(settings.StageNames()),
	})
	ledgerIsSound(s.t, s.db)
}

// ledgerIsSound fails the test unless every attempt has ended, no item was ever
// in two hands, and no stage of a successful item was done twice or never.
func ledgerIsSound(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	counts(t, db, map[string]int{
		`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`: 0,
		`SELECT count(*) FROM work_item_attempts a JOIN work_item_attempts b USING (work_item_id)
			WHERE a.claim_token < b.claim_token AND b.claimed_at < coalesce(a.ended_at, 'infinity')`: 0,
		`SELECT count(*) FROM work_items w CROSS JOIN stage_settings s
			WHERE w.status = 'Success' AND s.action = w.action AND 1 <> (
				SELECT count(*) FROM work_item_attempts a WHERE a.work_item_id = w.id AND a.stage = s.stage AND a.outcome = 'done')`: 0,
	})
	if t.Failed() {
		t.Logf("ledger:\n%s", strings.Join(ledger(t, db), "\n"))
	}
}

func ledger(t testing.TB, db *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := db.Query(t.Context(), `
		SELECT concat_ws(' ', work_item_id, claim_token, stage, attempt, pid, claimed_at::time, ended_at::time, outcome, error_code, left(error, 200))
		FROM work_item_attempts ORDER BY work_item_id, claim_token`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Error(err)
	}
	return lines
}

// counts compares the answers to queries with what they should be.
func counts(t testing.TB, db *pgxpool.Pool, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for sql := range want {
		got[sql] = ask[int](t, db, sql)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("records (-want +got):\n" + diff)
	}
}

func ask[T any](t testing.TB, db *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func keysOf(t testing.TB, b *storage.Bucket) (keys []string) {
	t.Helper()
	for o, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}
