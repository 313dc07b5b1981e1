package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

const (
	takeTurns = 3        // how often each way is tried
	partSize  = 16 << 20 // of a restored tar's upload
	inFlight  = 8        // small files read at once, FAROL_FILES
)

// BenchmarkRestoreLargeFile gives back an object of one file, beside copies of that
// file's object through a process: as they come, with a SHA-256, and with what makes
// a restoration safe, too, to be given its name by the store when all is there.
func BenchmarkRestoreLargeFile(b *testing.B) {
	const size = 1 << 30
	a := newArchive(b)
	a.ingest(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/large.bin", Size: size}}})
	file := a.stored("test.edu/large", "data/large.bin")[0]
	w := a.work("out=Restore Object")
	for b.Loop() {
		inTurns(b, size/1e6, "MB",
			way{"restore", func() { a.restore("test.edu/large") }, w.cpu, nil},
			way{"copy", func() { a.copied("copy.bin", size, a.get(file)) }, ownCPU, nil},
			way{"copy-sha256", func() { a.copied("copy.bin", size, io.TeeReader(a.get(file), sha256.New())) }, ownCPU, nil},
			way{"copy-sha256-named", func() {
				a.copied("staged.bin", size, io.TeeReader(a.get(file), sha256.New()))
				a.named("staged.bin", "copy.bin")
			}, ownCPU, nil},
		)
	}
}

// BenchmarkRestoreManyFiles gives back an object of small files, beside a client that
// reads them in a loop and writes a tar of them.
func BenchmarkRestoreManyFiles(b *testing.B) {
	const files = 20_000
	a := newArchive(b)
	a.ingest(bagtest.Spec{Name: "many", Files: manyFiles(files, 4<<10)})
	stored := a.stored("test.edu/many", "data/")
	w := a.work("out=Restore Object")
	for b.Loop() {
		inTurns(b, files, "files",
			way{"restore", func() { a.restore("test.edu/many") }, w.cpu, nil},
			way{"copy", func() {
				size, content := a.tarOf(stored)
				a.copied("copy.tar", size, content)
			}, ownCPU, nil},
		)
	}
}

// BenchmarkRestoreFiles gives back files one by one: a crowd of small ones, as many at
// once as there are slots, then one alone, and a large one. Beside them are a GET and
// a PUT of the same objects.
func BenchmarkRestoreFiles(b *testing.B) {
	const small, large, slots = 400, 1 << 30, 8
	a := newArchive(b)
	a.ingest(bagtest.Spec{Name: "files", Files: append(manyFiles(small, 4<<10), bagtest.File{Path: "data/large.bin", Size: large})})
	files := a.stored("test.edu/files", "data/0")
	one, whole := files[:1], a.stored("test.edu/files", "data/large.bin")
	w := a.work(fmt.Sprintf("out=Restore File;slots=%d", slots))
	var asked []int64
	for b.Loop() {
		inTurns(b, small, "files",
			way{"restore", func() { a.wait(asked) }, w.cpu, func() { asked = a.askWhilePaused(files) }},
			way{"copy", func() { a.each(files, slots, a.putOne) }, ownCPU, nil},
		)
		inTurns(b, 1, "alone",
			way{"restore", func() { a.wait(a.askAll(one)) }, w.cpu, nil},
			way{"copy", func() { a.each(one, 1, a.putOne) }, ownCPU, nil},
		)
		inTurns(b, large/1e6, "MB",
			way{"restore", func() { a.wait(a.askAll(whole)) }, w.cpu, nil},
			way{"copy", func() { a.copied("copy.bin", large, a.get(whole[0])) }, ownCPU, nil},
		)
	}
}

// BenchmarkRestoreTenAtOnce gives back ten objects of 1 GiB in one process, whose
// memory must stay below 512 MiB: half of each is one file, and half are files that
// are just small enough to be read ahead. It takes some 35 GB of disk.
func BenchmarkRestoreTenAtOnce(b *testing.B) {
	const objects, size, most = 10, 1 << 30, 512
	a := newArchive(b)
	var names []string
	for n := range objects {
		name := fmt.Sprintf("ten-%d", n)
		files := append(manyFiles(size/2>>20, 1<<20), bagtest.File{Path: "data/large.bin", Size: size / 2})
		for i := range files {
			files[i].Seed = uint64(n)
		}
		a.ingest(bagtest.Spec{Name: name, Files: files})
		names = append(names, "test.edu/"+name)
	}
	w := a.work(fmt.Sprintf("out=Restore Object;slots=%d", objects))
	for b.Loop() {
		began := time.Now()
		a.restore(names...)
		b.ReportMetric(objects*size/1e6/time.Since(began).Seconds(), "restore-MB/s")
		peak := w.peak()
		b.ReportMetric(peak, "peak-MiB")
		if peak >= most {
			b.Errorf("the process took %.0f MiB; it may take %d", peak, most)
		}
	}
}

// A way to do the same thing, and the processor time that it takes.
type way struct {
	name   string
	do     func()
	cpu    func() float64
	before func() // what is not measured; nil is nothing
}

// inTurns has each way done several times, first all of them once and then all
// again, and reports the medians. A single thing is reported by its time.
func inTurns(b *testing.B, amount float64, unit string, ways ...way) {
	b.Helper()
	wall, cpu := map[string][]float64{}, map[string][]float64{}
	for range takeTurns {
		for _, w := range ways {
			if w.before != nil {
				w.before()
			}
			cpuBefore, began := w.cpu(), time.Now()
			w.do()
			wall[w.name] = append(wall[w.name], time.Since(began).Seconds())
			cpu[w.name] = append(cpu[w.name], w.cpu()-cpuBefore)
		}
	}
	for _, w := range ways {
		slices.Sort(wall[w.name])
		slices.Sort(cpu[w.name])
		b.Logf("%s of %.0f %s: %.3f s wall, %.3f s of the client's processor", w.name, amount, unit, wall[w.name], cpu[w.name])
		if amount == 1 {
			b.ReportMetric(1000*wall[w.name][takeTurns/2], fmt.Sprintf("%s-%s-ms", w.name, unit))
			continue
		}
		b.ReportMetric(amount/wall[w.name][takeTurns/2], fmt.Sprintf("%s-%s/s", w.name, unit))
		b.ReportMetric(amount/cpu[w.name][takeTurns/2], fmt.Sprintf("%s-%s/cpu-s", w.name, unit))
	}
}

// ownCPU is the processor time of this process, in which the copies are made.
func ownCPU() float64 { return rig.CPU(syscall.RUSAGE_SELF) }

// archive is a stack without workers but those that the benchmark starts.
type archive struct {
	*dev

	plain    *s3.Client // as anyone would use it
	preserve string     // bucket of the one copy
	target   string     // bucket to which is given back
}

func newArchive(b *testing.B) *archive {
	b.Helper()
	ctx := context.Background()
	stack, _ := database(b, devstack.Redis, devstack.S3)
	a := &archive{dev: &dev{b: b, env: map[string]string{}, binary: build(b, b.TempDir())}, preserve: "wasabi-va", target: "aptrust.restore.test.edu"}
	file, err := stack.WriteEnv()
	if err != nil {
		b.Fatal(err)
	}
	a.connect(file)
	a.plain = a.plainClient()
	for _, bucket := range []string{"staging", a.preserve} {
		if _, err := a.plain.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
			b.Fatal(err)
		}
	}
	if out, err := a.farol("institution", "add", "test.edu", "--name", "Test", "--create-buckets").CombinedOutput(); err != nil {
		b.Fatalf("institution: %v\n%s", err, out)
	}
	return a
}

// plainClient has the settings for connections that Farol's has.
func (a *archive) plainClient() *s3.Client {
	gateway := devstack.GatewayOf(a.env)
	transport, err := gateway.Transport()
	if err != nil {
		a.b.Fatal(err)
	}
	transport.MaxIdleConnsPerHost, transport.WriteBufferSize, transport.ReadBufferSize = 64, 64<<10, 64<<10
	return gateway.Client(transport, func(o *s3.Options) {
		o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
	})
}

func (a *archive) farol(args ...string) *exec.Cmd {
	cmd := exec.Command(a.binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	for k, v := range a.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// worker is a `farol work`, with the memory limit that it sets for itself.
type worker struct {
	b   *testing.B
	cmd *exec.Cmd
}

// work starts a worker with one pool.
func (a *archive) work(pool string) *worker {
	a.b.Helper()
	w := &worker{b: a.b, cmd: a.farol("work", "--pool", pool)}
	log, err := os.Create(filepath.Join(a.b.TempDir(), "work.log"))
	if err != nil {
		a.b.Fatal(err)
	}
	w.cmd.Stdout, w.cmd.Stderr = log, log
	if err := w.cmd.Start(); err != nil {
		a.b.Fatal(err)
	}
	a.b.Cleanup(func() {
		w.stop()
		if a.b.Failed() {
			said, _ := os.ReadFile(log.Name())
			a.b.Logf("the worker said:\n%s", said[max(0, len(said)-8000):])
		}
		log.Close()
	})
	return w
}

func (w *worker) stop() {
	if w.cmd.ProcessState == nil {
		w.cmd.Process.Signal(syscall.SIGTERM)
		w.cmd.Wait()
	}
}

// peak is the largest resident size of the process so far, in MiB.
func (w *worker) peak() float64 {
	w.b.Helper()
	mib, err := rig.Memory(rig.Procfs, w.cmd.Process.Pid, "VmHWM")
	if err != nil {
		w.b.Fatal(err)
	}
	return mib
}

// cpu is the processor time of the process so far.
func (w *worker) cpu() float64 { return rig.Processes(rig.Procfs)[w.cmd.Process.Pid].Own }

// ingest brings a bag on record, with one copy of each file.
func (a *archive) ingest(spec bagtest.Spec) {
	a.b.Helper()
	ctx := context.Background()
	spec.StorageOption = "Wasabi-VA"
	content, err := os.Open(bagFile(a.b, spec))
	if err != nil {
		a.b.Fatal(err)
	}
	defer os.Remove(content.Name())
	defer content.Close() //nolint:errcheck // only read
	info, err := content.Stat()
	if err != nil {
		a.b.Fatal(err)
	}
	if _, err := a.bucket.Put(ctx, spec.Name+".tar", content, storage.Upload{Size: info.Size()}); err != nil {
		a.b.Fatal(err)
	}
	w := a.work("in=Receive..Cleanup")
	defer w.stop()
	a.read()
	a.dev.wait(1)
}

// stored are the files of an object whose path begins with a prefix.
func (a *archive) stored(object, prefix string) (files []registry.StoredFile) {
	a.b.Helper()
	o, err := a.registry.Object(context.Background(), object)
	if err != nil {
		a.b.Fatal(err)
	}
	for f, err := range a.registry.StoredFiles(context.Background(), o.ID, 0) {
		if err != nil {
			a.b.Fatal(err)
		}
		if strings.HasPrefix(f.Identifier, object+"/"+prefix) {
			files = append(files, f)
		}
	}
	return files
}

// restore has objects given back, and waits for it.
func (a *archive) restore(objects ...string) {
	a.b.Helper()
	var items []int64
	for _, object := range objects {
		items = append(items, a.ask(requests.RestorationRequest{Identifier: object}))
	}
	a.wait(items)
}

func (a *archive) askAll(files []registry.StoredFile) (items []int64) {
	a.b.Helper()
	for _, f := range files {
		items = append(items, a.ask(requests.RestorationRequest{Identifier: f.Identifier, File: true}))
	}
	return items
}

// askWhilePaused makes a queue of files to be given back, and lets it run.
func (a *archive) askWhilePaused(files []registry.StoredFile) []int64 {
	a.b.Helper()
	ctx := context.Background()
	if _, err := a.registry.Pause(ctx, "", "bench"); err != nil {
		a.b.Fatal(err)
	}
	items := a.askAll(files)
	if _, err := a.registry.Resume(ctx, ""); err != nil {
		a.b.Fatal(err)
	}
	return items
}

func (a *archive) ask(q requests.RestorationRequest) int64 {
	a.b.Helper()
	r, err := requests.In(a.registry).RequestRestoration(context.Background(), q)
	if err != nil {
		a.b.Fatal(err)
	}
	return r.Item.ID
}

// wait waits for items that end in about the order in which they were asked for.
func (a *archive) wait(items []int64) {
	a.b.Helper()
	for deadline := time.Now().Add(20 * time.Minute); len(items) > 0; {
		item, err := a.registry.WorkItem(context.Background(), items[0])
		switch {
		case err != nil:
			a.b.Fatal(err)
		case item.Status == "Success":
			items = items[1:]
			continue
		case !item.Retry, time.Now().After(deadline):
			a.b.Fatalf("%s is %s: %s", item.Name, item.Status, item.Note)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// get reads a file's copy. The caller reads it to its end.
func (a *archive) get(f registry.StoredFile) io.Reader {
	a.b.Helper()
	out, err := a.plain.GetObject(context.Background(), &s3.GetObjectInput{Bucket: &a.preserve, Key: &f.Copies[0].Key})
	if err != nil {
		a.b.Fatal(err)
	}
	return out.Body
}

// copied uploads content as it comes, part after part, with no digest of it.
func (a *archive) copied(key string, size int64, content io.Reader) {
	a.b.Helper()
	ctx := context.Background()
	up, err := a.plain.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &a.target, Key: &key})
	if err != nil {
		a.b.Fatal(err)
	}
	var parts []types.CompletedPart
	for number, left := int32(1), size; left > 0; number++ {
		length := min(left, partSize)
		out, err := a.plain.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &a.target, Key: &key, UploadId: up.UploadId, PartNumber: &number, ContentLength: &length, Body: io.LimitReader(content, length),
		}, unsigned)
		if err != nil {
			a.b.Fatal(err)
		}
		parts = append(parts, types.CompletedPart{PartNumber: &number, ETag: out.ETag})
		left -= length
	}
	_, err = a.plain.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &a.target, Key: &key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		a.b.Fatal(err)
	}
}

// unsigned lets a body go out as it comes: TLS protects it.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
	o.Retryer = aws.NopRetryer{}
}

// named has the store copy what was uploaded.
func (a *archive) named(from, to string) {
	a.b.Helper()
	_, err := a.plain.CopyObject(context.Background(), &s3.CopyObjectInput{Bucket: &a.target, Key: &to, CopySource: aws.String(a.target + "/" + from)})
	if err != nil {
		a.b.Fatal(err)
	}
}

// each does something with each file, so many at a time.
func (a *archive) each(files []registry.StoredFile, atOnce int, do func(registry.StoredFile) error) {
	a.b.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, f := range files {
		group.Go(func() error { return do(f) })
	}
	if err := group.Wait(); err != nil {
		a.b.Fatal(err)
	}
}

func (a *archive) content(f registry.StoredFile) ([]byte, error) {
	out, err := a.plain.GetObject(context.Background(), &s3.GetObjectInput{Bucket: &a.preserve, Key: &f.Copies[0].Key})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close() //nolint:errcheck // read to its end
	return io.ReadAll(out.Body)
}

func (a *archive) putOne(f registry.StoredFile) error {
	content, err := a.content(f)
	if err != nil {
		return err
	}
	_, err = a.plain.PutObject(context.Background(), &s3.PutObjectInput{
		Bucket: &a.target, Key: aws.String("copies/" + f.UUID), Body: bytes.NewReader(content),
	}, unsigned)
	return err
}

// tarOf reads files in a loop and writes them to a tar, in the order in which they come.
func (a *archive) tarOf(files []registry.StoredFile) (size int64, content io.Reader) {
	for _, f := range files {
		size += 512 + (f.Size+511)/512*512
	}
	r, w := io.Pipe()
	buffered := bufio.NewWriterSize(w, 128<<10)
	out := tar.NewWriter(buffered)
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(inFlight)
	go func() {
		for _, f := range files {
			group.Go(func() error {
				content, err := a.content(f)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if err := out.WriteHeader(&tar.Header{Name: f.Identifier, Mode: 0o644, Size: f.Size}); err != nil {
					return err
				}
				_, err = out.Write(content)
				return err
			})
		}
		err := errors.Join(group.Wait(), out.Close(), buffered.Flush())
		w.CloseWithError(err)
	}()
	return size + 1024, r
}
