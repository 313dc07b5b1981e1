package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// The test program is farol itself when it goes by that name, so that scripts
// run what was just compiled, under the race detector and counted for coverage.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "farol" {
		main()
	}
	flag.Bool("update", false, "write docs/configuration.md again")
	testenv.Main(m)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	must.Do(t, linkSelf(filepath.Join(bin, "farol")))
	must.Do(t, link(testenv.DevBinary(t), filepath.Join(bin, "farol-dev")))
	signatures := must.Get(filepath.Abs("../../format/testdata"))(t)
	operations := filepath.Join(t.TempDir(), "operations.txtar")
	must.Do(t, os.WriteFile(operations, []byte(examplesOfOperations(t)), 0o600))
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		Files:               []string{operations},
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			tb, ok := e.T().(testing.TB)
			if !ok {
				return errors.New("the script's T is no testing.TB")
			}
			s3, nsq := testenv.S3(tb), testenv.NSQ(tb)
			if strings.HasSuffix(e.WorkDir, "-mirror") { // its figures are those of one queue
				nsq = testenv.NewNSQ(tb)
			}
			database := testenv.DatabaseURL(tb)
			if strings.HasSuffix(e.WorkDir, "-server") || strings.HasSuffix(e.WorkDir, "-item-files") { // as which role it serves people, and where
				e.Setenv("WEB_DATABASE_URL", testenv.WebURL(tb, database))
				e.Setenv("WEB_ADDR", freeAddr(tb))
			}
			for name, value := range map[string]string{
				"FAROL_DATABASE_URL": database, "FAROL_REDIS_URL": testenv.RedisURL(tb),
				"FAROL_S3_ENDPOINT": s3.Endpoint, "FAROL_S3_CA_FILE": s3.CAFile, "AWS_REGION": s3.Region, "S3_PREFIX": s3.Prefix,
				"AWS_ACCESS_KEY_ID": s3.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s3.SecretAccessKey,
				"FAROL_NSQD_TCP_ADDR": nsq.TCPAddr, "FAROL_NSQD_HTTP_ADDR": nsq.HTTPAddr,
				"SIGNATURES": signatures,
				"SMTP":       testenv.NewMail(tb, nil).Addr, // for a script that sets a mail server
				"PATH":       bin + string(filepath.ListSeparator) + os.Getenv("PATH"), "GORACE": os.Getenv("GORACE"),
			} {
				e.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "bag": cmdBag, "deposit": cmdDeposit, "sql": cmdSQL, "await": cmdAwait,
			"claim": cmdClaim, "progress": cmdProgress, "fails": cmdFails, "count": cmdCount, "fault": cmdFault,
			"stores": cmdStores, "fetch": cmdFetch, "publish": cmdPublish, "nothing": cmdNothing, "advised": cmdAdvised,
		},
	})
}

// examplesOfOperations is a script that runs the examples of commands that are made of
// operations, where nothing is that they could change: they are understood and refused.
func examplesOfOperations(t *testing.T) string {
	t.Helper()
	var script strings.Builder
	root := rootCommand()
	for _, row := range ops.Rows((&api.API{}).Register) {
		if row.Command == "" {
			continue
		}
		c, _, err := root.Find(row.Words())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(c.Example) {
			code := 0
			if row.Changes() {
				code = 1
			}
			fmt.Fprintf(&script, "exits %d %s\n", code, strings.TrimSpace(line))
		}
	}
	return script.String()
}

func linkSelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return link(self, path)
}

// link gives a program another path, with other programs in its directory.
func link(program, path string) error {
	if os.Link(program, path) == nil {
		return nil
	}
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// An example copied from --help works.
func TestEveryExampleIsInAScript(t *testing.T) {
	t.Parallel()
	var scripts strings.Builder
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		scripts.Write(text)
	}
	scripts.WriteString(examplesOfOperations(t))
	walk(rootCommand(), func(c *cobra.Command) {
		if c.Example == "" && !c.HasSubCommands() {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " < ")
			if line != "" && !strings.Contains(scripts.String(), " "+line+"\n") && !strings.Contains(scripts.String(), " "+line+" &") {
				t.Errorf("no script runs %q", line)
			}
		}
	})
}

// walk visits the commands that scripts can run: not cobra's own, nor those that
// have servers in them and tests of their own.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if !slices.Contains([]string{"completion", "help", "internal", "dev", "demo", "work"}, sub.Name()) {
			visit(sub)
			walk(sub, visit)
		}
	}
}

// A service manager sends SIGTERM, and takes another exit code than 0 for a crash.
func TestSIGTERMEndsAServiceWell(t *testing.T) {
	t.Parallel()
	url, s3 := testenv.DatabaseURL(t), testenv.S3(t)
	farol := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(farol))
	c := exec.CommandContext(t.Context(), farol, "read-buckets", "--interval", "1h")
	c.Env = []string{
		"FAROL_DATABASE_URL=" + url, "FAROL_S3_ENDPOINT=" + s3.Endpoint, "FAROL_S3_CA_FILE=" + s3.CAFile,
		"AWS_ACCESS_KEY_ID=" + s3.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + s3.SecretAccessKey,
	}
	var stderr strings.Builder
	c.Stderr = &stderr
	must.Do(t, c.Start())
	ctx, cancel := bounded()
	defer cancel()
	if err := await(ctx, url, `SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'farol-read-buckets' AND datname = current_database()`); err != nil {
		t.Error(err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("farol read-buckets: %v\n%s", err, stderr.String())
	}
}

// cmdExits runs a program and checks what it exits with: exits CODE PROGRAM ARG...
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [arg...]")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// cmdBag makes a bag: bag FILE KIND.
func cmdBag(ts *testscript.TestScript, neg bool, args []string) {
	specs := map[string]bagtest.Spec{
		"good":    {},
		"corrupt": {Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}, Corrupt: []string{"data/a.txt"}, Leave: []string{"data/b.txt"}},
		"hostile": {Entries: []bagtest.Entry{
			{Name: "../../etc/passwd", Type: '0', Content: "x"},
			{Name: "sample-bag/data/\x1b[31mred", Type: '0', Content: "x"},
			{Name: "sample-bag/data/link", Type: '2', Linkname: "/etc/passwd"},
		}},
		"odd": {Profile: bagtest.BTR, StorageOption: "Nowhere"},
		"own": {Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "BagIt-Profile-Identifier", Value: "https://example.org/library.json"}}},
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bag file kind")
	}
	spec, ok := specs[args[1]]
	if !ok {
		ts.Fatalf("no kind of bag %q", args[1])
	}
	tar, err := spec.Bytes()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), tar, 0o600))
}

// scriptBucket opens a bucket of a script's server, until end is called.
func scriptBucket(ts *testscript.TestScript, name string) (b *storage.Bucket, end func()) {
	client := storage.NewClient(storage.Options{})
	b, err := client.Bucket(settings.S3{
		Endpoint: ts.Getenv("FAROL_S3_ENDPOINT"), CAFile: ts.Getenv("FAROL_S3_CA_FILE"), Region: ts.Getenv("AWS_REGION"),
		AccessKeyID: ts.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: storage.Secret(ts.Getenv("AWS_SECRET_ACCESS_KEY")),
	}.Target(name))
	ts.Check(err)
	return b, client.Close
}

// cmdDeposit uploads a file as a depositor would: deposit FILE BUCKET.
func cmdDeposit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: deposit file bucket")
	}
	ctx, cancel := bounded()
	defer cancel()
	b, end := scriptBucket(ts, args[1])
	defer end()
	content := ts.ReadFile(args[0])
	_, err := b.Put(ctx, filepath.Base(args[0]), strings.NewReader(content), storage.Upload{Size: int64(len(content))})
	ts.Check(err)
}

// cmdSQL runs a statement: sql STATEMENT.
func cmdSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql statement")
	}
	ctx, cancel := bounded()
	defer cancel()
	db, err := pgx.Connect(ctx, ts.Getenv("FAROL_DATABASE_URL"))
	ts.Check(err)
	_, err = db.Exec(ctx, args[0])
	ts.Check(errors.Join(err, db.Close(ctx)))
}

// cmdAwait asks until the answer is true: await QUERY.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await query")
	}
	ctx, cancel := bounded()
	defer cancel()
	ts.Check(await(ctx, ts.Getenv("FAROL_DATABASE_URL"), args[0]))
}

// await asks until the answer is true.
func await(ctx context.Context, url, query string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		if err := db.QueryRow(ctx, query).Scan(&yes); err != nil || yes {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("never true: %s", query)
		}
	}
}

// cmdClaim works as a worker would: claim STAGE hold|NEXT|CODE:MESSAGE. It takes
// an item of a stage and keeps it, moves it to the next stage or fails it.
func cmdClaim(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: claim stage hold|next-stage|code:message")
	}
	ctx, cancel := bounded()
	defer cancel()
	hold, closeDB := claimed(ctx, ts, args[0])
	defer closeDB()
	code, message, fails := strings.Cut(args[1], ":")
	switch {
	case args[1] == "hold":
	case fails:
		ts.Check(hold.Settle(ctx, claim.Done{}, claim.Fatal(code, "%s", message)))
	default:
		ts.Check(hold.Settle(ctx, claim.Done{Next: registry.Stage(args[1]), Note: "Done by a script"}, nil))
	}
}

// claimed claims the only item at a stage. Who closes the database without a word
// about the item keeps it, as a dead worker does; for longer than a script takes on a busy
// machine, so that what the next lines show is what the script made.
func claimed(ctx context.Context, ts *testscript.TestScript, stage string) (hold *claim.Hold, closeDB func()) {
	db, err := dial.Connect(ctx, ts.Getenv("FAROL_DATABASE_URL"), "script")
	ts.Check(err)
	options := claim.DefaultOptions()
	options.Lease = time.Hour
	engine, err := claim.New(ctx, db, options)
	ts.Check(err)
	items, err := engine.Claim(ctx, claim.Filter{Stages: []claim.Want{{Stage: registry.Stage(stage), Most: 1}}}, 1)
	ts.Check(err)
	if len(items) != 1 {
		ts.Fatalf("there is no item at %s to claim", stage)
	}
	return engine.Hold(ctx, items[0]), db.Close
}

// cmdProgress says that a stage has finished files: progress ITEM STAGE FILES.
func cmdProgress(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: progress item stage files")
	}
	item, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	files, err := strconv.Atoi(args[2])
	ts.Check(err)
	results := map[int]string{}
	for i := range files {
		results[i] = fmt.Sprint("done ", i)
	}
	ctx, cancel := bounded()
	defer cancel()
	store, err := progress.Connect(ctx, ts.Getenv("FAROL_REDIS_URL"), progress.Prefix)
	ts.Check(err)
	ts.Check(errors.Join(store.Done(ctx, progress.Claim{Item: item, Token: 1000}, args[1], results), store.Close()))
}

// bounded is for the commands of scripts, which have no context of their own.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), testenv.Patience)
}

// A person who stops a command knows that, and looks for no other reason.
func TestAnInterruptionIsToldAsOne(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c := settings.Database{URL: "postgres://u@127.0.0.1:1/x"}
	_, err := connect.Open(ctx, "test", connect.Needs{Database: &c})
	if f := cli.FailureOf(err); f.Code != cli.ExitFailed || f.Error() != "interrupted" || f.Next != "" {
		t.Errorf("connect = %v, reported as %+v", err, f)
	}
	if err := orderly(ctx, err); err != nil {
		t.Errorf("a service that is stopped while it starts: %v", err)
	}
	if err := orderly(t.Context(), err); err == nil {
		t.Error("a service that nobody stopped ends without an error")
	}
}

// freeAddr is a loopback address at which nothing listens now.
func freeAddr(t testing.TB) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	must.Do(t, l.Close())
	return l.Addr().String()
}
