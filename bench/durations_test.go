package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

var durations = flag.String("durations", "", "file to which BenchmarkStageDurations writes how long stages lasted, for the simulation in scale")

// BenchmarkStageDurations ingests bags of several sizes one at a time, so that no stage waits
// for a core that another bag has.
func BenchmarkStageDurations(b *testing.B) {
	d := startDev(b)
	for range b.N {
		for _, kind := range []struct {
			bags, files int
			size        int64
		}{{200, 3, 4 << 10}, {60, 20, 64 << 10}, {6, 3000, 1 << 10}, {6, 1, 512 << 20}, {3, 1, 2 << 30}} {
			for n := range kind.bags {
				d.deposit(fmt.Sprintf("f%d-s%d-n%d", kind.files, kind.size, n), 1, kind.files, kind.size)
				d.read()
				d.wait(1)
			}
		}
	}
	if *durations != "" {
		d.exportDurations(*durations)
	}
}

func (d *dev) exportDurations(path string) {
	d.b.Helper()
	sql, err := os.ReadFile("scale/durations.sql")
	if err != nil {
		d.b.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		d.b.Fatal(err)
	}
	defer f.Close()
	err = d.db.AcquireFunc(context.Background(), func(c *pgxpool.Conn) error {
		_, err := c.Conn().PgConn().CopyTo(context.Background(), f, "COPY ("+string(sql)+") TO STDOUT (FORMAT csv, HEADER)")
		return err
	})
	if err != nil {
		d.b.Fatal(err)
	}
}
