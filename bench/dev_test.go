// Package bench measures Farol as a whole, on a stack of its own with fsync on.
//
//	go test -bench . -benchtime 1x
package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// The workloads of the system that Farol replaces, as they were measured there.
func BenchmarkIngest30BagsOf20Files(b *testing.B) { ingest(b, 30, 20, 64<<10) }
func BenchmarkIngestBagOf3000Files(b *testing.B)  { ingest(b, 1, 3000, 1<<10) }
func BenchmarkIngest3BagsOf512MiB(b *testing.B)   { ingest(b, 3, 1, 512<<20) }

func ingest(b *testing.B, bags, files int, size int64) {
	d := startDev(b)
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		d.deposit(fmt.Sprintf("r%d", round), bags, files, size)
		cpu, commits, hops := d.cpu(), d.count(commitsSQL), d.count(hopsSQL)
		b.StartTimer()
		start := time.Now()
		d.read()
		d.wait(bags)
		b.ReportMetric(time.Since(start).Seconds(), "wall-s")
		hops = d.count(hopsSQL) - hops
		b.ReportMetric((d.count(commitsSQL)-commits)/hops, "written-commits/hop")
		for name, seconds := range d.cpu() {
			b.ReportMetric(seconds-cpu[name], "cpu-s-"+name)
		}
		for name, mib := range d.peaks() {
			b.ReportMetric(mib, "peak-MiB-"+name)
		}
	}
}

const (
	hopsSQL = `SELECT count(*) FROM work_item_attempts`
	// Transactions that wrote something: only these have a number. pg_stat_database counts all,
	// but late, as its sessions get to it.
	commitsSQL = `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
)

// count asks the database for a number.
func (d *dev) count(sql string) float64 {
	d.b.Helper()
	var n float64
	if err := d.db.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		d.b.Fatal(err)
	}
	return n
}

// dev is a running `farol dev`, without its bucket reader's delay: the figures
// start when the bucket is read.
type dev struct {
	b        *testing.B
	cmd      *exec.Cmd
	db       *pgxpool.Pool
	registry *registry.Registry
	bucket   *storage.Bucket
	env      map[string]string
	binary   string
	last     int64
}

func startDev(b *testing.B) *dev {
	b.Helper()
	dir := b.TempDir()
	d := &dev{b: b, binary: build(b, dir), env: map[string]string{}}
	data := filepath.Join(dir, "data")
	d.cmd = exec.Command(d.binary, "dev", "--data", data, "--read-interval", "1h")
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		d.cmd.Process.Signal(syscall.SIGTERM)
		d.cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
	}
	go func() {
		for lines.Scan() {
		}
	}()
	d.connect(filepath.Join(data, "env"))
	return d
}

// build builds the program in dir, and next to it farol-dev, which runs servers.
func build(b *testing.B, dir string) string {
	b.Helper()
	binary := filepath.Join(dir, "farol")
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/farol", "./cmd/farol-dev")
	build.Dir = ".." // the program's own module pins its libraries
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func (d *dev) connect(envFile string) {
	d.b.Helper()
	content, err := os.ReadFile(envFile)
	if err != nil {
		d.b.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok {
			d.env[k] = strings.Trim(v, "'")
		}
	}
	db, err := registry.Connect(context.Background(), d.env["FAROL_DATABASE_URL"], "bench")
	if err != nil {
		d.b.Fatal(err)
	}
	d.b.Cleanup(db.Close)
	d.db, d.registry = db, registry.New(db)
	d.bucket, err = storage.NewClient(storage.Options{}).Bucket(storage.Target{
		Bucket: "aptrust.receiving.test.edu", Endpoint: d.env["FAROL_S3_ENDPOINT"], CAFile: d.env["FAROL_S3_CA_FILE"],
		Region: d.env["AWS_REGION"], AccessKeyID: d.env["AWS_ACCESS_KEY_ID"],
		SecretAccessKey: storage.Secret(d.env["AWS_SECRET_ACCESS_KEY"]), PathStyle: true,
	})
	if err != nil {
		d.b.Fatal(err)
	}
}

func (d *dev) deposit(prefix string, bags, files int, size int64) {
	d.b.Helper()
	for n := range bags {
		spec := bagtest.Spec{Name: fmt.Sprintf("%s-bag-%d", prefix, n), TagManifests: []string{"md5", "sha256"}}
		for i := range files {
			spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/file-%d.bin", i), Size: size, Seed: uint64(n)})
		}
		tar, err := os.CreateTemp(d.b.TempDir(), "bag")
		if err != nil {
			d.b.Fatal(err)
		}
		if err := spec.WriteTar(tar); err != nil {
			d.b.Fatal(err)
		}
		length, _ := tar.Seek(0, 1)
		tar.Seek(0, 0)
		if _, err := d.bucket.Put(context.Background(), spec.Name+".tar", tar, storage.Upload{Size: length}); err != nil {
			d.b.Fatal(err)
		}
		tar.Close()
		os.Remove(tar.Name())
	}
}

// read makes the work items.
func (d *dev) read() {
	d.b.Helper()
	cmd := exec.Command(d.binary, "read-buckets", "--once")
	for k, v := range d.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		d.b.Fatalf("read-buckets: %v\n%s", err, out)
	}
}

func (d *dev) wait(bags int) {
	d.b.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		items, err := d.registry.WorkItems(context.Background(), registry.ItemFilter{Limit: bags})
		if err != nil {
			d.b.Fatal(err)
		}
		done := 0
		for _, item := range items {
			if item.Status == "Success" {
				done++
			} else if !item.Retry {
				d.b.Fatalf("%s is %s: %s", item.Name, item.Status, item.Note)
			}
		}
		if done == bags {
			return
		}
		if time.Now().After(deadline) {
			d.b.Fatalf("%d of %d bags are done", done, bags)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// kind names what a process of the stack is.
func kind(args []string) string {
	line := strings.Join(args, " ")
	switch {
	case strings.Contains(line, "internal identify"):
		return "identify"
	case strings.Contains(line, " work --max-size"):
		return "worker-small"
	case strings.Contains(line, " work --min-size"):
		return "worker-large"
	case strings.Contains(line, "internal s3"):
		return "s3"
	case strings.Contains(line, "redis-server"):
		return "redis"
	case strings.HasPrefix(line, "postgres:"), strings.Contains(line, "bin/postgres"):
		return "postgres"
	default:
		return "other"
	}
}

// processes calls do for all that descend from `farol dev`.
func (d *dev) processes(do func(dir, name string)) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, args := map[int]int{}, map[int][]string{}
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent[pid], _ = strconv.Atoi(fields[1])
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args[pid] = strings.Split(string(line), "\x00")
	}
	for pid := range parent {
		for p := pid; p > 1; p = parent[p] {
			if p == d.cmd.Process.Pid {
				do(fmt.Sprintf("/proc/%d", pid), kind(args[pid]))
				break
			}
		}
	}
}

// cpu returns seconds of user and system time so far, children that ended
// included.
func (d *dev) cpu() map[string]float64 {
	total := map[string]float64{}
	d.processes(func(dir, name string) {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, i := range []int{11, 12, 13, 14} {
			ticks, _ := strconv.ParseFloat(fields[i], 64)
			if name == "other" && i > 12 {
				continue // its children are counted themselves
			}
			total[name] += ticks / 100
			total["all"] += ticks / 100
		}
	})
	return total
}

// peaks returns the largest resident size of each kind of process, in MiB.
func (d *dev) peaks() map[string]float64 {
	peaks := map[string]float64{}
	d.processes(func(dir, name string) {
		status, err := os.ReadFile(dir + "/status")
		if err != nil {
			return
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				peaks[name] = max(peaks[name], kib/1024)
			}
		}
	})
	return peaks
}
