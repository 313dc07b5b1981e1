package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/retry"
)

// findFarol returns the path of the program farol, which has to be in the directory of
// this one.
func findFarol() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), "farol")
	if _, err := exec.LookPath(path); err != nil {
		return "", cli.Usage(fmt.Errorf("the program farol is not in %s: %w", filepath.Dir(self), err), "run `make build`, which puts both programs into bin")
	}
	return path, nil
}

// call runs a command of farol on the stack, as a user would, and returns its output.
// The error of a command that fails has what the command said.
func (l *local) call(ctx context.Context, args ...string) ([]byte, error) {
	return l.callWith(ctx, nil, args...)
}

// callWith is call with more settings.
func (l *local) callWith(ctx context.Context, more []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.farol, args...)
	cmd.Env = slices.Concat(os.Environ(), l.Env(), more)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		return out.Bytes(), ctx.Err()
	}
	if err != nil {
		return out.Bytes(), fmt.Errorf("farol %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// readBuckets has the receiving buckets read once, and returns the number of bags
// that are new.
func (l *local) readBuckets(ctx context.Context) (int, error) {
	var found struct{ Created int }
	err := l.ask(ctx, &found, "read-buckets", "--once", "--json")
	return found.Created, err
}

// ask runs a command that prints JSON, and reads that.
func (l *local) ask(ctx context.Context, into any, args ...string) error {
	out, err := l.call(ctx, args...)
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	return err
}

// examine runs farol doctor. The data of refused bags in staging and Redis stays for its
// retention, and is no orphan; that a person has to decide about them is intended.
func (l *local) examine(ctx context.Context) error {
	out, err := l.call(ctx, "doctor", "--json")
	var report struct {
		Findings []struct {
			Why    string `json:"why"`
			Person bool   `json:"needs_person"`
		} `json:"findings"`
		Unchecked []any `json:"unchecked"`
	}
	if json.Unmarshal(out, &report) != nil {
		return err
	}
	bad := len(report.Unchecked)
	for _, f := range report.Findings {
		if f.Person && f.Why != openReview {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	shown, _ := l.call(ctx, "doctor") // it fails for the same findings
	return fmt.Errorf("the doctor reports problems:\n%s", shown)
}

// openReview is the doctor's name for an item that waits for a person.
const openReview = "open-review"

// awaitMirror waits until nsqd has all transitions, and counts what it has.
func (l *local) awaitMirror(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var status struct{ Behind int }
		err := l.ask(ctx, &status, "mirror", "status", "--json")
		if err == nil && status.Behind == 0 {
			return nsqdMessages(ctx, l.NSQDHTTPAddr)
		}
		if err != nil {
			return 0, err
		}
		if !retry.Pause(ctx, 100*time.Millisecond) {
			return 0, fmt.Errorf("wait for the mirror, which is %d messages behind: %w", status.Behind, ctx.Err())
		}
	}
}

// nsqdMessages asks nsqd how many messages its topics have been given.
func nsqdMessages(ctx context.Context, addr string) (n int64, err error) {
	var stats struct {
		Topics []struct {
			MessageCount int64 `json:"message_count"`
		} `json:"topics"`
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/stats?format=json", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("query nsqd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		err = errors.Join(json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&stats), response.Body.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("query nsqd: %w", err)
	}
	for _, t := range stats.Topics {
		n += t.MessageCount
	}
	return n, nil
}
