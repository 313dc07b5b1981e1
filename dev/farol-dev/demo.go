package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/storage"
)

// errUnexpected says that the demonstration did not end as it should.
var errUnexpected = errors.New("not every bag ended as it should")

func demoCommand() *cobra.Command {
	var data string
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch real bags go from a receiving bucket into preservation storage",
		Long: `Start private servers, register two institutions, upload sample bags of several
kinds, ingest them with two worker processes, and show how each bag ended. Then restore
some and delete one. A link at the beginning leads a browser to the console. At the end
the servers are stopped and, unless --data is given, their data is removed.`,
		Example: `  farol demo
  farol demo --keep
  farol demo --data ./demo-data`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), data, keep)
		},
	}
	c.Flags().StringVar(&data, "data", "", "keep data, logs and addresses in this new directory")
	c.Flags().BoolVar(&keep, "keep", false, "keep everything up after the table until Ctrl-C")
	return c
}

func runDemo(ctx context.Context, out io.Writer, dir string, keep bool) (err error) {
	temporary := dir == ""
	if dir, err = demoDir(dir); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	fmt.Fprintln(out, "Starting PostgreSQL, Redis, an S3 gateway and nsqd on loopback ports.")
	l, err := startLocal(ctx, dir, false, log)
	if err != nil {
		if temporary && ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	defer func() {
		if temporary && (err == nil || ctx.Err() != nil) { // else what went wrong can be looked into
			err = errors.Join(err, l.remove(ctx))
			return
		}
		err = errors.Join(err, l.stop(ctx))
	}()
	h, err := l.startHelpers(ctx, 0)
	if err != nil {
		return err
	}
	defer h.stopAll()
	cli.Say(out, "Up after %v: two workers and the mirror run; nsqadmin is at %s while they do.\n",
		time.Since(began).Round(10*time.Millisecond), l.NSQAdminURL)

	if err := l.invite(ctx, out, "Watch the bags in a browser"); err != nil {
		return err
	}

	d := &demo{local: l, out: out}
	if err := d.run(ctx); err != nil {
		return err
	}
	if keep {
		fmt.Fprintf(out, "\nStill up, until Ctrl-C: . %s/env\n", l.dir)
		return errors.Join(d.verdict(), l.invite(ctx, out, "Sign in to the console"), l.watch(ctx, out))
	}
	if err := d.verdict(); err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "see the logs in " + filepath.Join(l.dir, "log")}
	}
	return nil
}

// demoDir is the directory for the data of a demonstration; "" is a temporary one.
func demoDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "farol-demo-")
		if err != nil {
			return "", fmt.Errorf("make a data directory: %w", err)
		}
		return made, nil
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", cli.Usage(fmt.Errorf("%s is not empty", dir), "name a new directory, or leave --data out")
	}
	return dir, nil
}

// demo is one demonstration.
type demo struct {
	*local
	out    io.Writer
	ended  []ended
	took   time.Duration // from the first upload to the last end
	bytes  int64
	mirror int64 // messages that reached nsqd
}

// ended is a bag and what became of it.
type ended struct {
	sample
	item    record.WorkItem
	summary record.ObjectSummary
}

func (d *demo) run(ctx context.Context) error {
	for name, identifier := range map[string]string{"Lighthouse University": lighthouse, "Harbor College": harbor} {
		if err := d.institution(ctx, name, identifier); err != nil {
			return err
		}
	}
	began := time.Now()
	for i, round := range [][]sample{samples(), secondRound()} {
		if i == 1 {
			cli.Say(d.out, "\nNow a second version of a bag that is on record.")
		}
		if err := d.deposit(ctx, round); err != nil {
			return err
		}
		if err := d.follow(ctx, round); err != nil {
			return err
		}
	}
	d.took = time.Since(began)
	var err error
	if d.mirror, err = d.awaitMirror(ctx); err != nil {
		return err
	}
	if err := d.summarise(ctx); err != nil {
		return err
	}
	if err := d.print(); err != nil {
		return err
	}
	if err := d.wayBack(ctx); err != nil {
		return err
	}
	if err := d.examine(ctx); err != nil {
		return err
	}
	cli.Say(d.out, "farol doctor: no orphans in any store, and every copy that is on record is there.")
	d.next()
	return nil
}

// deposit uploads the bags, and a file that is not a bag, as depositors would.
func (d *demo) deposit(ctx context.Context, round []sample) error {
	for _, s := range round {
		size, err := d.upload(ctx, s)
		if err != nil {
			return err
		}
		d.bytes += size
	}
	receiving, err := d.bucket("aptrust.receiving." + lighthouse)
	if err != nil {
		return err
	}
	readme := "This is not a bag and stays where it is.\n"
	if _, err := receiving.Put(ctx, "README.txt", strings.NewReader(readme), storage.Upload{Size: int64(len(readme))}); err != nil {
		return fmt.Errorf("upload README.txt: %w", err)
	}

	n, err := d.readBuckets(ctx)
	if err != nil {
		return err
	}
	cli.Say(d.out, "The bucket reader found %s and ignored the file that is not a tar.", human.Count(n, "new bag", "new bags"))
	if n != len(round) {
		return fmt.Errorf("%d bags were uploaded, and the bucket reader found %d", len(round), n)
	}
	return nil
}

// most is how long a round may take before something must be wrong.
const most = 150 * time.Second

// follow shows the bags' way through the stages until all have ended.
func (d *demo) follow(ctx context.Context, round []sample) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	source := explain.Source{Progress: d.progress, Measures: ingest.Measures()}
	show := newFollower(d.out, round)
	defer show.close()
	items, err := d.rest(ctx, "bags", len(round), func(item record.WorkItem) {
		stage, _ := source.Stage(ctx, item) // the bag is shown without its figures, if need be
		show.update(item, stage)
	})
	for _, item := range items {
		for _, s := range round {
			if s.key == item.Name && s.institution == item.Institution {
				d.ended = append(d.ended, ended{sample: s, item: item})
			}
		}
	}
	return err
}

// rest waits until none of the last items is live, and returns them. It shows each of them each time
// that it has looked.
func (d *demo) rest(ctx context.Context, what string, last int, show func(record.WorkItem)) ([]record.WorkItem, error) {
	for {
		items, _, err := browse.In(d.registry, registry.Everything()).Items(ctx, browse.ItemFilter{}, browse.Page{Limit: last})
		if err != nil {
			return nil, err
		}
		live := 0
		for _, item := range items {
			if item.Retry {
				live++
			}
			show(item)
		}
		if live == 0 {
			return items, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d %s are still in progress: %w", live, what, context.Cause(ctx))
		case err := <-d.Died():
			return nil, fmt.Errorf("cannot restart a server of the stack: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d *demo) summarise(ctx context.Context) error {
	for i := range d.ended {
		e := &d.ended[i]
		if e.item.IntellectualObjectID == nil {
			continue
		}
		var err error
		if e.summary, err = d.registry.Summary(ctx, *e.item.IntellectualObjectID); err != nil {
			return err
		}
	}
	return nil
}

// asExpected says in which way a bag did not end as expected; "" if it did. An object
// that a later bag changed is judged by that one.
func (d *demo) asExpected(e ended) string {
	switch {
	case e.item.Status != e.status:
		return "should have ended as " + string(e.status)
	case !strings.Contains(e.item.Note+" "+e.item.Outcome, e.note):
		return fmt.Sprintf("the reason should mention %q", e.note)
	case e.status == "Success" && !d.changedLater(e) && (e.summary.Files != e.files || number(e.summary.Copies) != e.copies):
		return fmt.Sprintf("should have %d files in %d copies", e.files, e.copies)
	}
	return ""
}

// number is 0 for what was not counted.
func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func (d *demo) changedLater(e ended) bool {
	for _, other := range d.ended {
		if other.item.ObjectIdentifier == e.item.ObjectIdentifier && other.item.ID > e.item.ID {
			return true
		}
	}
	return false
}

func (d *demo) verdict() error {
	if len(d.ended) != len(samples())+len(secondRound()) {
		return errUnexpected
	}
	for _, e := range d.ended {
		if d.asExpected(e) != "" {
			return errUnexpected
		}
	}
	return nil
}

// print shows how every bag ended.
func (d *demo) print() error {
	header := []string{"END", "BAG", "STAGE", "FILES", "COPIES", "EVENTS", "WHAT IT WAS, AND THE REASON"}
	var rows [][]string
	for _, e := range d.ended {
		events := int64(0)
		for _, n := range e.summary.Events {
			events += n
		}
		reason := e.what
		if e.status != "Success" {
			reason += ": " + explain.FirstFinding(e.item.Note)
		}
		if bad := d.asExpected(e); bad != "" {
			reason = "UNEXPECTED: " + bad + "; " + reason
		}
		rows = append(rows, []string{
			string(e.item.Status), e.item.ObjectIdentifier, string(e.item.Stage), count(e.summary.Files), count(number(e.summary.Copies)), count(events), human.Line(reason),
		})
	}
	fmt.Fprintln(d.out)
	if err := cli.WriteNoted(d.out, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	cli.Say(d.out, "%s", d.outcome())
	cli.Say(d.out, "%d bags, %s, in %.1f s (%s/s); %d transitions mirrored to NSQ.",
		len(d.ended), human.Bytes(d.bytes), d.took.Seconds(), human.Bytes(int64(float64(d.bytes)/d.took.Seconds())), d.mirror)
	return nil
}

// outcome counts how the bags ended.
func (d *demo) outcome() string {
	expected, ingested, refused := 0, 0, 0
	for _, e := range d.ended {
		switch {
		case d.asExpected(e) != "":
			continue
		case e.status == "Success":
			ingested++
		default:
			refused++
		}
		expected++
	}
	return fmt.Sprintf("%d of %d ended as expected: %d ingested, %d refused on purpose.", expected, len(samples())+len(secondRound()), ingested, refused)
}

// next says what to try next.
func (d *demo) next() {
	fmt.Fprintln(d.out, "\nTry next:")
	for _, line := range []string{
		"farol dev                keep the same servers running, and deposit bags",
		"farol validate BAG.tar   check a bag of your own, as the pipeline does",
		"farol item list          the items of all bags; farol item explain 1 explains one",
		"farol restore object ID  restore a bag; farol delete deletes it",
	} {
		fmt.Fprintln(d.out, "  "+cli.CutTo(line, cli.TerminalWidth(d.out)-2))
	}
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
