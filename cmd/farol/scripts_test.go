package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// cmdFails works as a worker would whose stage fails: fails STAGE KIND CODE
// MESSAGE [FILE]. KIND is transient, suspend or cancel.
func cmdFails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: fails stage kind code message [file]")
	}
	ctx, cancel := bounded()
	defer cancel()
	hold, closeDB := claimed(ctx, ts, args[0])
	defer closeDB()
	if len(args) > 4 {
		hold.CurrentFile(args[4])
	}
	result := map[string]error{
		"transient": claim.Transient(args[2], errors.New(args[3])),
		"suspend":   claim.Suspend(args[2], args[3]),
		"cancel":    claim.Cancel(args[2], args[3]),
	}[args[1]]
	ts.Check(hold.Settle(ctx, claim.Done{}, result))
}

// cmdCount says how far the attempt is that has an item: count ITEM STAGE
// FILES/BEFORE/TOTAL BYTES/BEFORE/TOTAL SECONDS [PATH BYTES/SIZE].
func cmdCount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: count item stage files/before/total bytes/before/total seconds [path bytes/size]")
	}
	numbers := func(arg string) (list []int64) {
		for part := range strings.SplitSeq(arg, "/") {
			n, err := strconv.ParseInt(part, 10, 64)
			ts.Check(err)
			list = append(list, n)
		}
		return list
	}
	id, files, bytes := numbers(args[0])[0], numbers(args[2]), numbers(args[3])
	spent := time.Duration(numbers(args[4])[0]) * time.Second
	c := progress.Counters{
		Stage: registry.Stage(args[1]), Elapsed: spent, Moved: spent, Files: files[0], FilesBefore: files[1], FilesTotal: files[2],
		Bytes: bytes[0], BytesBefore: bytes[1], BytesTotal: bytes[2],
	}
	if len(args) > 6 {
		size := numbers(args[6])
		c.Busy, c.CurrentFiles = 1, []progress.CurrentFile{{Path: strings.ReplaceAll(args[5], "ESC", "\x1b"), Files: 1, Bytes: size[0], Size: size[1]}}
	}
	withRedis(ts, id, func(ctx context.Context, s *progress.Store, held progress.Claim) error { return s.Count(ctx, held, c) })
}

// cmdFault says what the last attempt failed of: fault ITEM CODE PATH EXPECTED
// FOUND MESSAGE.
func cmdFault(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 6 {
		ts.Fatalf("usage: fault item code path expected found message")
	}
	id, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	f := progress.Fault{Code: args[1], Path: strings.ReplaceAll(args[2], "ESC", "\x1b"), Expected: args[3], Found: args[4], Message: args[5]}
	withRedis(ts, id, func(ctx context.Context, s *progress.Store, held progress.Claim) error {
		return s.Fail(ctx, held, progress.Faults{List: []progress.Fault{f}, More: 3})
	})
}

// withRedis writes to Redis as the last attempt of an item.
func withRedis(ts *testscript.TestScript, id int64, write func(context.Context, *progress.Store, progress.Claim) error) {
	ctx, cancel := bounded()
	defer cancel()
	db, err := dial.Connect(ctx, ts.Getenv("FAROL_DATABASE_URL"), "script")
	ts.Check(err)
	defer db.Close()
	attempts, err := registry.New(db).Attempts(ctx, id)
	ts.Check(err)
	if len(attempts) == 0 {
		ts.Fatalf("item %d has no attempt", id)
	}
	store, err := progress.Connect(ctx, ts.Getenv("FAROL_REDIS_URL"), progress.Prefix)
	ts.Check(err)
	held := progress.Claim{Item: id, Token: attempts[len(attempts)-1].ClaimToken}
	ts.Check(errors.Join(write(ctx, store, held), store.Close()))
	ts.Logf("%s", fmt.Sprintf("item %d, token %d", id, held.Token))
}

// cmdPublish publishes to nsqd as an old script does: publish TOPIC BODY.
func cmdPublish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: publish topic body")
	}
	ctx, cancel := bounded()
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+ts.Getenv("FAROL_NSQD_HTTP_ADDR")+"/pub?topic="+args[0], strings.NewReader(args[1]))
	ts.Check(err)
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	ts.Check(response.Body.Close())
	if response.StatusCode != http.StatusOK {
		ts.Fatalf("nsqd answers %s", response.Status)
	}
}

// cmdAdvised runs what the last command advised, as it was printed: the commands of
// Farol between backticks. There must be some.
func cmdAdvised(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: advised")
	}
	advice := regexp.MustCompile("`(farol [^`]+)`").FindAllStringSubmatch(ts.ReadFile("stdout")+ts.ReadFile("stderr"), -1)
	if len(advice) == 0 {
		ts.Fatalf("nothing was advised")
	}
	for _, m := range advice {
		ts.Logf("advised: %s", m[0])
		ts.Check(ts.Exec("sh", "-c", m[1]))
	}
}
