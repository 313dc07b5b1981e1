package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// dev is a farol dev in a directory, seen by the person who has started it.
type dev struct {
	t     *testing.T
	data  string
	cmd   *exec.Cmd
	text  []string // the lines before the link
	link  string
	after chan []string // gets the lines after it, at the end
}

func startDev(t *testing.T, data string, args ...string) *dev {
	t.Helper()
	d := &dev{t: t, data: data, after: make(chan []string, 1)}
	d.cmd = exec.CommandContext(t.Context(), testenv.DevBinary(t), append([]string{"up", "--data", data}, args...)...)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PG_BINDIR=" + os.Getenv("PG_BINDIR")}
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for d.link == "" {
		if !lines.Scan() {
			t.Fatalf("there is no link: %q", d.text)
		}
		if line := lines.Text(); strings.Contains(line, "/sign-in/") {
			d.link = strings.TrimSpace(line)
		} else {
			d.text = append(d.text, line)
		}
	}
	go func() {
		var rest []string
		for lines.Scan() {
			rest = append(rest, lines.Text())
		}
		d.after <- rest
	}()
	return d
}

// farol runs a command on the stack, in a shell that has its settings.
func (d *dev) farol(command string) string {
	d.t.Helper()
	script := ". '" + d.data + "/env' && '" + testenv.Binary(d.t) + "' " + command
	out, err := exec.CommandContext(d.t.Context(), "sh", "-c", script).Output()
	if err != nil {
		d.t.Errorf("%s: %v", command, err)
	}
	return string(out)
}

// stop is Ctrl-C. Nothing but that was printed after the link.
func (d *dev) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Error(err)
	}
	if rest := <-d.after; strings.Join(rest, "\n") != "Stopping." {
		d.t.Errorf("after the link: %q", rest)
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(d.data, "sample-*")); len(left) > 0 {
		d.t.Errorf("samples stay: %q", left)
	}
}

func (d *dev) saysThatBagsCome() bool {
	return strings.Contains(strings.Join(d.text, "\n"), "Sample bags arrive")
}

// A newcomer sees bags move without having made one. A directory that has data gets
// no others.
func TestNewDevHasBagsToWatch(t *testing.T) {
	t.Parallel()
	data, err := os.MkdirTemp("/tmp", "farol-up-") //nolint:usetesting // PostgreSQL's user may not pass through t.TempDir
	if err == nil {
		err = os.Chmod(data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	d := startDev(t, data)
	if !d.saysThatBagsCome() {
		t.Errorf("it says %q", d.text)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, want := range []int{http.StatusSeeOther, http.StatusGone} {
		a, err := client.Post(d.link, "application/x-www-form-urlencoded", nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("the link is answered with %d, want %d", a.StatusCode, want)
		}
	}
	testenv.Eventually(t, "two sample bags", func() bool { return strings.Count(d.farol("item list --json"), ".tar") >= 2 })
	db := must.Get(pgx.Connect(t.Context(), d.farol(`version >&2; printf %s "$FAROL_DATABASE_URL"`)))(t)
	defer db.Close(t.Context()) //nolint:errcheck // it has only read
	var wait time.Duration
	if err := db.QueryRow(t.Context(), `SELECT deletion_wait FROM request_settings`).Scan(&wait); err != nil || wait != 0 {
		t.Errorf("approved deletions wait for %s, %v", wait, err)
	}
	if another := d.farol("user reset " + developer); !strings.Contains(another, "/password/") {
		t.Errorf("there is no other way in: %s", another)
	}
	d.stop()

	d = startDev(t, data)
	if d.saysThatBagsCome() {
		t.Error("bags are added to an archive that has some")
	}
	d.stop()
	d = startDev(t, filepath.Join(data, "other"), "--empty")
	if d.saysThatBagsCome() {
		t.Error("--empty has no effect")
	}
	d.stop()
}

// The dozen is of several sizes, one fails, and no two are the same object.
func TestFirstBagsAreADozen(t *testing.T) {
	t.Parallel()
	failing, names := 0, map[string]bool{}
	for _, s := range firstBags() {
		names[s.key] = true
		if s.institution != firstInstitution {
			t.Errorf("%s is of %s", s.key, s.institution)
		}
		if s.status == "Failed" {
			failing++
		}
	}
	if failing != 1 || len(names) != 12 {
		t.Errorf("%d bags fail of %d", failing, len(names))
	}
}
