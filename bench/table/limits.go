package table

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// limits are what the machine can do, a second, by name.
type limits map[string]float64

const (
	disk          = "disk with fsync MB/s"
	put           = "gateway PUT/s of 1 KiB"
	copied        = "gateway copies/s of 1 KiB"
	head          = "gateway HEAD/s of 1 KiB"
	part          = "gateway MB/s of 8 MiB parts"
	md5Rate       = "MD5 MB/s a core"
	sha1Rate      = "SHA-1 MB/s a core"
	sha256Rate    = "SHA-256 MB/s a core"
	sha512Rate    = "SHA-512 MB/s a core"
	identifyNoise = "formats files/s of 64 KiB random bytes"
	identifyText  = "formats files/s of 1 KiB text"
	selects       = "PostgreSQL SELECT/s"
	commits       = "PostgreSQL commits/s"
)

// limitNames are in the order in which they are measured and shown.
func limitNames() []string {
	return []string{
		disk, md5Rate, sha1Rate, sha256Rate, sha512Rate, put, copied, head, part, identifyNoise, identifyText, selects, commits,
	}
}

const (
	connections = 8 // at once, to the gateway and to PostgreSQL
	span        = 2 * time.Second
	partSize    = 8 << 20
)

// measure measures all limits, each after the other, on a stack that does nothing else.
func measure(ctx context.Context, farol, dir string, progress func(name string, value float64)) (limits, error) {
	stack, err := devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "limits"), Executable: farol + "-dev", Only: []devstack.Service{devstack.Postgres, devstack.S3},
	})
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	defer stack.Remove(context.WithoutCancel(ctx)) //nolint:errcheck // the directory is deleted with all that is left
	found := limits{}
	note := func(name string, value float64, err error) error {
		if err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
		found[name] = value
		progress(name, value)
		return nil
	}
	mbs, err := writeFile(filepath.Join(dir, "written"))
	if err := note(disk, mbs, err); err != nil {
		return nil, err
	}
	for _, h := range []struct {
		name string
		hash hash.Hash
	}{{md5Rate, md5.New()}, {sha1Rate, sha1.New()}, {sha256Rate, sha256.New()}, {sha512Rate, sha512.New()}} {
		if err := note(h.name, digestRate(h.hash), nil); err != nil {
			return nil, err
		}
	}
	for _, group := range []func(context.Context, *devstack.Stack, string, func(string, float64, error) error) error{gatewayLimits, formatLimits, databaseLimits} {
		if err := group(ctx, stack, farol, note); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// perSecond has workers do something for a while, and returns how often they did.
func perSecond(ctx context.Context, do func(ctx context.Context, worker, n int) error) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for worker := range connections {
		running.Go(func() {
			for n := 0; time.Since(began) < span && ctx.Err() == nil; n++ {
				if err := do(ctx, worker, n); err != nil {
					cancel(err)
				}
				done.Add(1)
			}
		})
	}
	running.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

// writeFile writes a file of 1 GiB, and returns MB/s until it is on the disk.
func writeFile(path string) (rate float64, err error) {
	const size, block = 1 << 30, 1 << 20
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	buf := noise(block, 1)
	began := time.Now()
	for range size / block {
		if _, err := f.Write(buf); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return size / 1e6 / time.Since(began).Seconds(), nil
}

func noise(size int, seed byte) []byte {
	buf := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(buf) // it never fails
	return buf
}

// digestRate is how many MB are hashed in a second of processor time.
func digestRate(h hash.Hash) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := noise(1<<20, 2)
	n, cpu, began := 0, rig.CPU(syscall.RUSAGE_THREAD), time.Now()
	for time.Since(began) < span/4 {
		n++
		_, _ = h.Write(buf) // a hash does not fail
	}
	return float64(n*len(buf)) / 1e6 / (rig.CPU(syscall.RUSAGE_THREAD) - cpu)
}

// gatewayLimits asks the S3 gateway by requests that are signed and nothing else.
func gatewayLimits(ctx context.Context, stack *devstack.Stack, _ string, note func(string, float64, error) error) error {
	g, err := newGateway(stack)
	if err != nil {
		return err
	}
	if err := g.send(ctx, "PUT", "/limits", nil); err != nil {
		return err
	}
	upload, err := g.createUpload(ctx, "/limits/large")
	if err != nil {
		return err
	}
	small, large := noise(1<<10, 3), noise(partSize, 4)
	key := func(worker, n int) string { return fmt.Sprintf("/limits/%d-%d", worker, n) }
	for _, l := range []struct {
		name string
		each float64 // what one of them counts as
		do   func(ctx context.Context, worker, n int) error
	}{
		{put, 1, func(ctx context.Context, worker, n int) error {
			return g.send(ctx, "PUT", key(worker, n), small)
		}},
		{copied, 1, func(ctx context.Context, worker, n int) error {
			return g.send(ctx, "PUT", key(worker, n)+"-copy", nil, "X-Amz-Copy-Source", key(worker, 0))
		}},
		{head, 1, func(ctx context.Context, worker, _ int) error {
			return g.send(ctx, "HEAD", key(worker, 0), nil)
		}},
		{part, partSize / 1e6, func(ctx context.Context, worker, _ int) error {
			return g.send(ctx, "PUT", fmt.Sprintf("/limits/large?partNumber=%d&uploadId=%s", worker+1, upload), large)
		}},
	} {
		rate, err := perSecond(ctx, l.do)
		if err := note(l.name, rate*l.each, err); err != nil {
			return err
		}
	}
	return nil
}

// formatLimits identifies files as a worker does, by as many children.
func formatLimits(ctx context.Context, _ *devstack.Stack, farol string, note func(string, float64, error) error) error {
	formats, err := format.Start(ctx, format.Options{Command: []string{farol, "internal", "identify"}})
	if err != nil {
		return err
	}
	defer formats.Close()
	text := []byte(strings.Repeat("The keeper lit the lamp at dusk. ", 32)[:1<<10])
	for _, c := range []struct {
		name, file string
		content    []byte
	}{{identifyNoise, "a.bin", noise(64<<10, 5)}, {identifyText, "a.txt", text}} {
		identify := func(ctx context.Context, worker, n int) error {
			content := append([]byte(nil), c.content...)
			copy(content[len(content)/2:], fmt.Sprintf(" %d %d ", worker, n)) // no two have the same digest
			_, err := formats.Identify(ctx, c.file, int64(len(content)), bytes.NewReader(content))
			return err
		}
		if err := identify(ctx, 0, 0); err != nil { // the children load their signatures
			return err
		}
		rate, err := perSecond(ctx, identify)
		if err := note(c.name, rate, err); err != nil {
			return err
		}
	}
	return nil
}

// databaseLimits asks PostgreSQL for next to nothing, and has it commit next to nothing.
func databaseLimits(ctx context.Context, stack *devstack.Stack, _ string, note func(string, float64, error) error) error {
	db, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", stack.AdminURL, connections))
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer db.Close()
	if err := rig.MustBeDurable(ctx, db); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `CREATE TABLE limits (n integer)`); err != nil {
		return fmt.Errorf("create a table: %w", err)
	}
	for _, c := range [][2]string{{selects, `SELECT $1::integer`}, {commits, `INSERT INTO limits VALUES ($1)`}} {
		name, sql := c[0], c[1]
		rate, err := perSecond(ctx, func(ctx context.Context, _, n int) error {
			_, err := db.Exec(ctx, sql, n)
			return err
		})
		if err := note(name, rate, err); err != nil {
			return err
		}
	}
	return nil
}

// gateway sends requests that are signed and nothing else, so that the server's limit is
// measured and not the client's.
type gateway struct {
	endpoint, region string
	keys             aws.Credentials
	signer           *v4.Signer
	client           *http.Client
}

func newGateway(stack *devstack.Stack) (*gateway, error) {
	transport, err := stack.Gateway().Transport()
	if err != nil {
		return nil, err
	}
	transport.MaxIdleConnsPerHost, transport.WriteBufferSize, transport.ReadBufferSize = connections, 64<<10, 64<<10
	return &gateway{
		endpoint: stack.S3Endpoint, region: stack.Region,
		keys:   aws.Credentials{AccessKeyID: stack.AccessKeyID, SecretAccessKey: stack.SecretAccessKey},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		client: &http.Client{Transport: transport},
	}, nil
}

// do sends a request with headers given as name and value, and returns the answer's body.
func (g *gateway) do(ctx context.Context, method, path string, body []byte, headers ...string) ([]byte, error) {
	const payload = "UNSIGNED-PAYLOAD" // TLS protects it
	r, err := http.NewRequestWithContext(ctx, method, g.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Amz-Content-Sha256", payload)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if err := g.signer.SignHTTP(ctx, g.keys, r, payload, "s3", g.region, time.Now()); err != nil {
		return nil, err
	}
	answer, err := g.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}

// send is do for a request whose answer says nothing.
func (g *gateway) send(ctx context.Context, method, path string, body []byte, headers ...string) error {
	_, err := g.do(ctx, method, path, body, headers...)
	return err
}

// createUpload begins an upload in parts and returns its id.
func (g *gateway) createUpload(ctx context.Context, path string) (string, error) {
	text, err := g.do(ctx, "POST", path+"?uploads=", nil)
	if err != nil {
		return "", err
	}
	var begun struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(text, &begun); err != nil {
		return "", fmt.Errorf("read the upload's id: %w", err)
	}
	return begun.UploadID, nil
}
