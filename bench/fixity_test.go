package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	fixitypkg "github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// copiesEnv says of how many copies BenchmarkFixityClaim has a table; 10000000 takes
// some 20 GB and a quarter of an hour.
const copiesEnv = "FAROL_BENCH_COPIES"

// database is a migrated database with fsync on, of this benchmark alone.
func database(b *testing.B, services ...devstack.Service) (*devstack.Stack, *pgxpool.Pool) {
	b.Helper()
	ctx := context.Background()
	servers, err := rig.Start(ctx, "", devstack.Options{Only: services})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { servers.Stop(ctx) })
	db, err := dial.Connect(ctx, servers.Stack.AdminURL, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	return servers.Stack, db
}

func run(b *testing.B, db *pgxpool.Pool, statements ...string) {
	b.Helper()
	for _, sql := range statements {
		if _, err := db.Exec(context.Background(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
}

// manyCopies makes files with a copy each, of which one in a hundred is due.
func manyCopies(b *testing.B, db *pgxpool.Pool, n int) {
	b.Helper()
	run(b, db,
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Bench', 'bench.edu', 'r', 's')`,
		`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag) VALUES (1, 'bench.edu/bag', 'T', 'bag', 'p', 'e')`)
	const chunk = 500_000
	for from := 0; from < n; from += chunk {
		tx, err := db.Begin(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for _, sql := range []string{
			`SET LOCAL session_replication_role = replica`, `SET LOCAL synchronous_commit = off`,
			fmt.Sprintf(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
				SELECT 1, 1, 'bench.edu/bag/data/' || n, gen_random_uuid(), 'text/plain', 1000, 'Standard', now() FROM generate_series(%d, %d) n`, from+1, min(from+chunk, n)),
			// The due ones were checked anywhere in the past, the others within 89 days.
			fmt.Sprintf(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at)
				SELECT id, 'https://s3.us-east-1.amazonaws.com/preservation-va/' || uuid, 'Standard-VA', 'preservation-va', uuid::text, now(), now(),
					now() - CASE WHEN id %% 100 = 0 THEN interval '90 days' + random() * interval '300 days' ELSE random() * interval '89 days' END
				FROM generic_files WHERE id > %d AND id <= %d`, from, from+chunk),
			fmt.Sprintf(`INSERT INTO file_digests (generic_file_id, sha256, datetime)
				SELECT id, sha256(uuid::text::bytea), now() FROM generic_files WHERE id > %d AND id <= %d AND id %% 100 = 0`, from, from+chunk),
		} {
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				b.Fatalf("%s: %v", sql, err)
			}
		}
		if err := tx.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	run(b, db, `VACUUM ANALYZE generic_files, storage_records, file_digests`, `CHECKPOINT`)
}

// BenchmarkFixityClaim claims due copies among very many, records what was found of
// them, and asks how it stands.
func BenchmarkFixityClaim(b *testing.B) {
	copies, _ := strconv.Atoi(os.Getenv(copiesEnv))
	copies = max(copies, 100_000)
	stack, db := database(b)
	began := time.Now()
	manyCopies(b, db, copies)
	b.Logf("%d copies in %v", copies, time.Since(began).Round(time.Second))
	r := registry.New(db)
	ctx := context.Background()
	if _, err := fixity.In(r).Feed(ctx, 1<<30, 30*time.Minute); err != nil {
		b.Fatal(err)
	}
	claim := fixity.Claim{Worker: "bench", Targets: []string{"Standard-VA"}, Most: 20, Days: 90, Lease: time.Minute}
	for b.Loop() {
		var claims, records []time.Duration
		for range 400 {
			began := time.Now()
			list, err := fixity.In(r).Claim(ctx, claim)
			if claims = append(claims, time.Since(began)); err != nil || len(list) != claim.Most {
				b.Fatalf("%d claimed, %v", len(list), err)
			}
			for _, c := range list {
				began := time.Now()
				ends, err := fixity.In(r).Record(ctx, fixity.Result{
					Hold: fixity.Hold{ID: c.ID, Token: c.Token}, Key: c.Key, Algorithm: "sha256", Expected: c.SHA256, Found: c.SHA256, Bytes: c.Size,
				})
				if records = append(records, time.Since(began)); err != nil || ends[0] != fixity.Recorded {
					b.Fatalf("recording came to %v, %v", ends, err)
				}
			}
		}
		for name, list := range map[string][]time.Duration{"claim": claims, "record": records} {
			slices.Sort(list)
			b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-p50-ms")
			b.ReportMetric(float64(list[len(list)*99/100].Microseconds())/1000, name+"-p99-ms")
		}
		began := time.Now()
		s, err := fixity.In(r).Status(ctx, fixity.StatusQuery{Days: 90, Tries: 3, Worst: 10})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "status-s")
		b.Logf("%d copies, %d overdue, %.2f %%, done at %v", s.Copies, s.Overdue, *s.Compliance, s.DoneAt)
	}
	explain(b, stack.AdminURL, claim)
}

// explain logs how the server goes about a claim.
func explain(b *testing.B, url string, claim fixity.Claim) {
	b.Helper()
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 1
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "fixity_checks") {
			b.Log(n.Message)
		}
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET jit = off; SET plan_cache_mode = force_generic_plan; LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;
			SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; SET client_min_messages = log`)
		return err
	}
	db, err := dial.Open(ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, err := fixity.In(registry.New(db)).Claim(ctx, claim); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFixityRead checks copies on the S3 gateway, whole: claim, reading, digest,
// record. Beside it plain GETs of the same bytes through the same gateway feed
// sha256sum, as many at a time.
func BenchmarkFixityRead(b *testing.B) {
	stack, db := database(b, devstack.S3)
	client := storage.NewClient(storage.Options{})
	b.Cleanup(client.Close)
	bucket, err := client.Bucket(storage.Target{
		Name: "Standard-VA", Bucket: "preservation-va", Endpoint: stack.S3Endpoint, CAFile: stack.S3CAFile, Region: stack.Region,
		AccessKeyID: stack.AccessKeyID, SecretAccessKey: storage.Secret(stack.SecretAccessKey), PathStyle: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := bucket.Create(b.Context()); err != nil {
		b.Fatal(err)
	}
	run(b, db,
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Bench', 'bench.edu', 'r', 's')`,
		`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag) VALUES (1, 'bench.edu/bag', 'T', 'bag', 'p', 'e')`)
	for _, c := range []struct {
		name  string
		files int
		size  int64
	}{{"4x256MiB", 4, 256 << 20}, {"64x16MiB", 64, 16 << 20}, {"2000x64KiB", 2000, 64 << 10}} {
		keys := storedCopies(b, db, bucket, c.name, c.files, c.size)
		for _, slots := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/slots=%d/farol", c.name, slots), func(b *testing.B) {
				b.SetBytes(int64(c.files) * c.size)
				server, err := rig.FindPostmaster(b.Context(), db)
				if err != nil {
					b.Fatal(err)
				}
				own, database := rig.CPU(syscall.RUSAGE_SELF), server.CPU()
				defer func() {
					checks := float64(b.N * c.files)
					b.ReportMetric(1000*(rig.CPU(syscall.RUSAGE_SELF)-own)/checks, "own-cpu-ms/check")
					b.ReportMetric(1000*(server.CPU()-database)/checks, "database-cpu-ms/check")
				}()
				for b.Loop() {
					b.StopTimer()
					run(b, db, `UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE key LIKE '`+c.name+`%'`,
						`UPDATE fixity_feed SET allowance = 1000000`)
					b.StartTimer()
					checkAll(b, db, bucket, slots, c.files)
				}
			})
			b.Run(fmt.Sprintf("%s/slots=%d/sha256sum", c.name, slots), func(b *testing.B) {
				b.SetBytes(int64(c.files) * c.size)
				for b.Loop() {
					sumAll(b, bucket, slots, keys)
				}
			})
		}
	}
}

// storedCopies puts objects into a bucket and on record.
func storedCopies(b *testing.B, db *pgxpool.Pool, bucket *storage.Bucket, name string, files int, size int64) (keys []string) {
	b.Helper()
	for i := range files {
		content := make([]byte, size)
		random := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
		random.Read(content) //nolint:errcheck // it never fails
		key := fmt.Sprintf("%s-%04d", name, i)
		if _, err := bucket.Put(b.Context(), key, bytes.NewReader(content), storage.Upload{Size: size}); err != nil {
			b.Fatal(err)
		}
		sum := sha256.Sum256(content)
		run(b, db, fmt.Sprintf(`WITH f AS (
			INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
			VALUES (1, 1, 'bench.edu/bag/%[1]s', gen_random_uuid(), 'text/plain', %[2]d, 'Standard', now()) RETURNING id
		), c AS (INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'sha256', '%[3]x', now() FROM f)
		INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'https://s3/%[1]s', 'Standard-VA', 'preservation-va', '%[1]s', now(), now() FROM f`, key, size, sum))
		keys = append(keys, key)
	}
	return keys
}

// checkAll has Farol check all copies that are due.
func checkAll(b *testing.B, db *pgxpool.Pool, bucket *storage.Bucket, slots, files int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	f := &fixitypkg.Checker{
		Registry: registry.New(db), Targets: map[string]*storage.Bucket{"Standard-VA": bucket}, Log: slog.New(slog.DiscardHandler),
		Worker: "bench", Slots: slots, Batch: 4, Days: 90, Attempts: 3,
		Observe: func(o fixitypkg.Outcome) {
			if o.Result != "matched" {
				b.Errorf("a check came to %+v", o)
			}
			if done.Add(1) == int64(files) {
				cancel()
			}
		},
	}
	if err := f.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

// sumAll pipes each object into sha256sum.
func sumAll(b *testing.B, bucket *storage.Bucket, atOnce int, keys []string) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(atOnce)
	for _, key := range keys {
		group.Go(func() error {
			body, err := bucket.Get(ctx, key, storage.Range{Length: -1})
			if err != nil {
				return err
			}
			defer body.Close() //nolint:errcheck // it was read to its end
			sum := exec.CommandContext(ctx, "sha256sum")
			sum.Stdin = body
			return sum.Run()
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}
