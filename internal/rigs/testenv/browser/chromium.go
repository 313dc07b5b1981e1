package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// chromium is a Chromium without a window, for pages of our own alone. It is told what to do
// by a pipe, in the DevTools protocol, and ends when the pipe does: by our doing or our death.
type chromium struct {
	cmd   *exec.Cmd
	to    io.WriteCloser
	ended chan struct{} // closed once it has

	mu      sync.Mutex
	sent    int                    // number of the last command; guarded by mu
	waiting map[int]chan<- message // for the answer to a command; guarded by mu
	tabs    map[string]*Tab        // by session; guarded by mu
}

// message is a command, the answer to one, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// params are the parameters of a command, by its names.
type params map[string]any

// shared is the browser of this process, which a test that opens a tab has no other way to find.
var shared struct { //nolint:gochecknoglobals // see above
	once sync.Once
	*chromium
	err error
}

// running returns the browser that the tests of this process share. It ends with them.
func running(t testing.TB) (*chromium, error) {
	t.Helper()
	shared.once.Do(func() {
		if shared.chromium, shared.err = start(testenv.OwnDir(t, "chromium-")); shared.err == nil {
			testenv.AtEnd(shared.stop)
		}
	})
	return shared.chromium, shared.err
}

// program is the path of Chromium. Its shell is the same without windows, tabs and
// toolbars, which the other draws although nobody sees them.
func program() (path string, err error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "/Applications/Chromium.app/Contents/MacOS/Chromium"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no chromium: apt-get install chromium-headless-shell | brew install chromium: %w", err)
}

// start starts a browser that keeps what it keeps in a directory.
func start(dir string) (*chromium, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	commands, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe: %w", err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe: %w", err)
	}
	c := &chromium{to: to, ended: make(chan struct{}), waiting: map[int]chan<- message{}, tabs: map[string]*Tab{}}
	c.cmd = exec.Command(path,
		"--headless", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"),
		// Its sandbox needs an ordinary user with namespaces, which a container does not
		// give, and the memory that it shares more than a container has.
		"--no-sandbox", "--disable-dev-shm-usage",
		// It opens pages of this machine, and asks nobody for anything else.
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--no-proxy-server",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
		"--disable-extensions", "--disable-breakpad", "--no-first-run", "--no-default-browser-check",
		"--password-store=basic", "--use-mock-keychain",
		// All tabs are in the background, and look the same on each machine.
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
		"--lang=en-US", "--hide-scrollbars", "--force-color-profile=srgb")
	c.cmd.Dir, c.cmd.Env = dir, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + dir}
	c.cmd.ExtraFiles = []*os.File{commands, answers} // 3 and 4, as it expects them
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.cmd.Start()
	if err = errors.Join(err, commands.Close(), answers.Close()); err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	go c.listen(from)
	return c, nil
}

// stop ends the browser. Its processes outlive the first of them for a moment, and write into
// a directory that is about to be removed.
func (c *chromium) stop() {
	c.to.Close() //nolint:errcheck // it may have ended
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
	}
	group := -c.cmd.Process.Pid
	for deadline := time.Now().Add(2 * time.Second); syscall.Kill(group, syscall.SIGKILL) == nil && time.Now().Before(deadline); {
		<-time.After(5 * time.Millisecond)
	}
	<-c.ended
}

// listen hands over what the browser says, in its order, until it ends.
func (c *chromium) listen(from io.ReadCloser) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		var m message
		if err != nil || json.Unmarshal(text[:len(text)-1], &m) != nil {
			break
		}
		c.mu.Lock()
		answered, tab := c.waiting[m.ID], c.tabs[m.Session]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		switch {
		case answered != nil:
			answered <- m
		case m.Method != "" && tab != nil:
			tab.listen(m)
		}
	}
	from.Close() //nolint:errcheck // only read
	c.cmd.Wait() //nolint:errcheck // whatever its status: it is asked to end
	close(c.ended)
}

// call sends a command to a session, or to the browser if that is "", and returns the answer.
func (c *chromium) call(session, method string, p params) (json.RawMessage, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	answered := make(chan message, 1)
	c.mu.Lock()
	c.sent++
	m := message{ID: c.sent, Session: session, Method: method, Params: text}
	c.waiting[m.ID] = answered
	if text, err = json.Marshal(m); err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	const patience = time.Minute // for one command
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case a := <-answered:
		if a.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-c.ended:
		return nil, fmt.Errorf("%s: Chromium has ended", method)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: no answer: %w", method, ctx.Err())
	}
}

// ask is call for an answer of a type.
func ask[R any](c *chromium, session, method string, p params) (r R, err error) {
	text, err := c.call(session, method, p)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read the answer to %s: %w", method, err)
	}
	return r, nil
}

// attach opens a tab with cookies and storage of its own. What it reports is for b.
func (c *chromium) attach(b *Tab) (session string, leave func(), err error) {
	own, err := ask[struct{ BrowserContextID string }](c, "", "Target.createBrowserContext", params{})
	if err != nil {
		return "", nil, err
	}
	made, err := ask[struct{ TargetID string }](c, "", "Target.createTarget", params{"url": "about:blank", "browserContextId": own.BrowserContextID})
	if err != nil {
		return "", nil, err
	}
	at, err := ask[struct{ SessionID string }](c, "", "Target.attachToTarget", params{"targetId": made.TargetID, "flatten": true})
	if err != nil {
		return "", nil, err
	}
	c.mu.Lock()
	c.tabs[at.SessionID] = b
	c.mu.Unlock()
	return at.SessionID, func() {
		c.call("", "Target.disposeBrowserContext", params{"browserContextId": own.BrowserContextID}) //nolint:errcheck // the test is over
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.tabs, at.SessionID)
	}, nil
}
