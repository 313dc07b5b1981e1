package table

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/storage"
)

// dev is a running farol dev whose bucket reader waits: the figures begin when the bucket
// is read. The program looks on as superuser, whose statements are not counted.
type dev struct {
	farol, data string
	cmd         *exec.Cmd
	ended       chan struct{} // closed when the process has ended
	env         []string
	settings    map[string]string // the same, by their names
	db          *pgxpool.Pool
	bucket      *storage.Bucket
}

// startDev starts farol dev in a new directory, with a server that counts statements, and
// has one bag ingested, so that all its parts run and are warm.
func startDev(ctx context.Context, farol, dir string) (d *dev, err error) {
	d = &dev{farol: farol, data: filepath.Join(dir, "data-"+rand.Text()), ended: make(chan struct{})}
	superuser, err := d.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.launch(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	env, err := rig.Env(filepath.Join(d.data, "env"))
	if err != nil {
		return nil, err
	}
	d.settings = env
	for name, value := range env {
		d.env = append(d.env, name+"="+value)
	}
	u, err := url.Parse(env["FAROL_DATABASE_URL"])
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	u.User = superuser
	if d.db, err = pgxpool.New(ctx, u.String()); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := rig.MustBeDurable(ctx, d.db); err != nil {
		return nil, err
	}
	if _, err := d.db.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return nil, fmt.Errorf("have statements counted: %w", err)
	}
	if d.bucket, err = rig.Receiving(env); err != nil {
		return nil, err
	}
	warm := workload{bags: 1, files: 3, size: 1 << 10}
	if err := d.deposit(ctx, "warm", warm); err != nil {
		return nil, err
	}
	_, err = d.ingest(ctx)
	return d, err
}

// prepare makes the cluster and has its server count statements from the next start on.
func (d *dev) prepare(ctx context.Context) (superuser *url.Userinfo, err error) {
	stack, err := devstack.Start(ctx, devstack.Options{Dir: d.data, Executable: d.farol + "-dev", Only: []devstack.Service{devstack.Postgres}})
	if err != nil {
		return nil, fmt.Errorf("make the cluster: %w", err)
	}
	defer func() { err = errors.Join(err, stack.Stop(context.WithoutCancel(ctx))) }()
	u, err := url.Parse(stack.AdminURL)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	db, err := pgxpool.New(ctx, stack.AdminURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	defer db.Close()
	if _, err := db.Exec(ctx, `ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'`); err != nil {
		return nil, fmt.Errorf("have statements counted: %w", err)
	}
	return u.User, nil
}

func (d *dev) launch(ctx context.Context) error {
	d.cmd = exec.CommandContext(ctx, d.farol, "dev", "--data", d.data, "--read-interval", "1h", "--s3-log")
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make the pipe: %w", err)
	}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start farol dev: %w", err)
	}
	up := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Ctrl-C") {
				close(up)
			}
		}
		d.cmd.Wait() //nolint:errcheck // that it has ended is what counts
		close(d.ended)
	}()
	select {
	case <-up:
		return nil
	case <-d.ended:
		return errors.New("farol dev did not come up")
	}
}

// stop ends farol dev and deletes its data.
func (d *dev) stop() error {
	if d.db != nil {
		d.db.Close()
	}
	err := d.cmd.Process.Signal(syscall.SIGTERM)
	<-d.ended
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// deposit uploads the bags of a round.
func (d *dev) deposit(ctx context.Context, prefix string, w workload) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(connections)
	for n := range uint64(w.bags) { //nolint:gosec // it is above zero
		group.Go(func() error {
			spec := bagtest.Spec{Name: fmt.Sprintf("%s-%d", prefix, n), TagManifests: []string{"md5", "sha256"}}
			for i := range w.files {
				spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%s/file-%d.bin", prefix, i), Size: w.size, Seed: n})
			}
			return d.upload(ctx, spec)
		})
	}
	return group.Wait()
}

func (d *dev) upload(ctx context.Context, spec bagtest.Spec) (err error) {
	tar, err := os.Create(filepath.Join(d.data, spec.Name+".tar"))
	if err != nil {
		return fmt.Errorf("make a bag: %w", err)
	}
	defer func() { err = errors.Join(err, tar.Close(), os.Remove(tar.Name())) }()
	if err := spec.WriteTar(tar); err != nil {
		return fmt.Errorf("make a bag: %w", err)
	}
	size, err := tar.Seek(0, 1)
	if err != nil {
		return fmt.Errorf("make a bag: %w", err)
	}
	if _, err := tar.Seek(0, 0); err != nil {
		return fmt.Errorf("make a bag: %w", err)
	}
	if _, err := d.bucket.Put(ctx, spec.Name+".tar", tar, storage.Upload{Size: size}); err != nil {
		return fmt.Errorf("deposit a bag: %w", err)
	}
	return nil
}

// longest is how long a round may take.
const longest = time.Hour

// ingest has the bucket read and returns how long it took until all bags were on record.
// It looks seldom, so that looking costs no more than a hundredth.
func (d *dev) ingest(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	began := time.Now()
	read := exec.CommandContext(ctx, d.farol, "read-buckets", "--once")
	read.Env = d.env
	if out, err := read.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("read the bucket: %w\n%s", err, out)
	}
	for {
		var busy, failed int
		err := d.db.QueryRow(ctx, `
			SELECT count(*) FILTER (WHERE retry), count(*) FILTER (WHERE NOT retry) FROM work_items WHERE status <> 'Success'`).Scan(&busy, &failed)
		switch {
		case err != nil:
			return 0, fmt.Errorf("look at the items: %w", err)
		case failed > 0:
			return 0, fmt.Errorf("%d bags were not ingested", failed)
		case busy == 0:
			return time.Since(began), nil
		}
		pause := time.NewTimer(max(2*time.Millisecond, time.Since(began)/200))
		select {
		case <-ctx.Done():
			pause.Stop()
			return 0, fmt.Errorf("wait for %d bags: %w", busy, ctx.Err())
		case <-pause.C:
		}
	}
}

// counts are what the servers have counted so far.
type counts struct {
	Statements, Claims, Claimed, Transitions, Commits, WAL, Stored int64
	Requests                                                       int64 // to S3
}

// countsSQL does not count a claim as empty whose items began when their stage before ended:
// they were handed on without a claim.
const countsSQL = `
SELECT (SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = 'farol'),
	(SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query LIKE '-- claim\_%'),
	(SELECT count(DISTINCT (worker, claimed_at)) FROM work_item_attempts a
		WHERE NOT EXISTS (SELECT FROM work_item_attempts b WHERE b.work_item_id = a.work_item_id AND b.ended_at = a.claimed_at)),
	(SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'),
	pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
	(pg_current_wal_insert_lsn() - '0/0')::bigint,
	(SELECT count(*) FROM generic_files)`

func (d *dev) count(ctx context.Context) (c counts, err error) {
	err = d.db.QueryRow(ctx, countsSQL).Scan(&c.Statements, &c.Claims, &c.Claimed, &c.Transitions, &c.Commits, &c.WAL, &c.Stored)
	if err != nil {
		return c, fmt.Errorf("count: %w", err)
	}
	lines, err := os.ReadFile(filepath.Join(d.data, "log", "s3-requests.log"))
	if err != nil {
		return c, fmt.Errorf("count the requests to S3: %w", err)
	}
	c.Requests = int64(bytes.Count(lines, []byte("\n")))
	return c, nil
}

// plus adds others so many times, as -1 takes them away.
func (c counts) plus(b counts, times int64) counts {
	return counts{
		Statements: c.Statements + times*b.Statements, Claims: c.Claims + times*b.Claims, Claimed: c.Claimed + times*b.Claimed,
		Transitions: c.Transitions + times*b.Transitions, Commits: c.Commits + times*b.Commits, WAL: c.WAL + times*b.WAL,
		Stored: c.Stored + times*b.Stored, Requests: c.Requests + times*b.Requests,
	}
}
