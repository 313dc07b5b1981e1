package main

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/storage"
)

// dev is a stack as it is seen from outside.
type dev struct {
	b        *testing.B
	db       *pgxpool.Pool
	registry *registry.Registry
	bucket   *storage.Bucket
	env      map[string]string
	binary   string
}

// build builds the program in dir, and next to it farol-dev, which runs servers.
func build(b *testing.B, dir string) string {
	b.Helper()
	binary, err := devstack.Build(b.Context(), "..", dir)
	if err != nil {
		b.Fatal(err)
	}
	return binary
}

func (d *dev) connect(envFile string) {
	d.b.Helper()
	var err error
	if d.env, err = rig.Env(envFile); err != nil {
		d.b.Fatal(err)
	}
	if d.db, err = dial.Connect(context.Background(), d.env["FAROL_DATABASE_URL"], "bench"); err != nil {
		d.b.Fatal(err)
	}
	d.b.Cleanup(d.db.Close)
	d.registry = registry.New(d.db)
	if d.bucket, err = rig.Receiving(d.env); err != nil {
		d.b.Fatal(err)
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
		items, _, err := browse.In(d.registry, registry.Everything()).Items(context.Background(), browse.ItemFilter{}, browse.Page{Limit: bags})
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
