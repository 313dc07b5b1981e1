package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// files makes a tree of small files, as a kernel would show it.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	}
	return dir
}

// stat is a line of /proc/PID/stat, proc(5).
func stat(pid int, name, state string, start int64) string {
	return fmt.Sprintf("%d (%s) %s 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20 21\n", pid, name, state, start)
}

func TestStartTime(t *testing.T) {
	t.Parallel()
	k := Kernel{Proc: files(t, map[string]string{
		"10/stat": stat(10, "farol", "S", 4711),
		"11/stat": stat(11, "a) Z (b) ", "R", 12),
		"12/stat": stat(12, "farol", "Z", 13),
		"13/stat": "13 (farol) S 1 2",
		"14/stat": "",
	})}
	for pid, want := range map[int]int64{10: 4711, 11: 12} {
		if got, err := k.startTime(pid); err != nil || got != want {
			t.Errorf("process %d started at %d, %v; want %d", pid, got, err, want)
		}
	}
	for pid, ended := range map[int]bool{9: true, 12: true, 13: false, 14: false} {
		if _, err := k.startTime(pid); err == nil || errors.Is(err, fs.ErrNotExist) != ended {
			t.Errorf("process %d: %v; want an error, of one that has ended: %v", pid, err, ended)
		}
	}
}

func TestOOMKills(t *testing.T) {
	t.Parallel()
	k := Kernel{CGroup: files(t, map[string]string{
		"memory.events":               "oom_kill 99\n", // of the root: it says nothing about anyone
		"pod/memory.events":           "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
		"pod/a/memory.events":         "oom 1\noom_kill 1\n",
		"pod/b/memory.events":         "oom_kill many\n",
		"memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
	})}
	for group, want := range map[string]int64{
		"pod/a": 1, "/pod/a": 1, "pod/gone/deep": 2, "pod/b": 0, "memory/x": 7, "memory/x/gone": 7, "memory/gone": 0, "": 0, "/": 0, "gone": 0,
	} {
		if got := k.OOMKills(group); got != want {
			t.Errorf("oomKills(%q) = %d, want %d", group, got, want)
		}
	}
}

func TestGroupOfTheMemoryController(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0::/system.slice/farol.service\n": "/system.slice/farol.service",
		"5:cpu:/a\n4:memory:/b/c\n0::/d\n": "memory/b/c",
		"0::/a:b\n":                        "/a:b",
		"nonsense\n":                       "",
		"":                                 "",
	} {
		if got := (Kernel{Proc: files(t, map[string]string{"self/cgroup": text})}).group(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := (Kernel{Proc: t.TempDir()}).group(); got != "" {
		t.Errorf("without the file: %q", got)
	}
}

// A process is dead if its number is free, or another process has it now.
func TestCauseOfDeath(t *testing.T) {
	t.Parallel()
	k := Kernel{
		Proc:   files(t, map[string]string{"10/stat": stat(10, "farol", "S", 5)}),
		CGroup: files(t, map[string]string{"pod/memory.events": "oom_kill 2\n"}),
	}
	worker := func(name, words string) string {
		name = fmt.Sprintf("test-%d-%s", os.Getpid(), name)
		r := must.Get(createLog(name))(t)
		t.Cleanup(func() { Discard(name) })
		must.Do(t, errors.Join(r.file.Close(), os.WriteFile(filepath.Join(r.dir, crashFile), []byte(words), 0o600)))
		return name
	}
	quiet, loud := worker("quiet", ""), worker("loud", "panic: no more\n\tof this\n\ngoroutine 1 [running]:\n")
	for name, tc := range map[string]struct {
		worker string
		start  Start
		want   Death
		ok     bool
	}{
		"alive":                  {quiet, Start{PID: 10, Ticks: 5}, Death{}, false},
		"number used again":      {quiet, Start{PID: 10, Ticks: 4}, Death{Cause: "killed"}, true},
		"gone":                   {quiet, Start{PID: 11, Group: "pod", OOMKills: 2}, Death{Cause: "killed"}, true},
		"gone, never recorded":   {"none", Start{PID: 11}, Death{Cause: "killed"}, true},
		"out of memory":          {quiet, Start{PID: 11, Group: "pod", OOMKills: 1}, Death{Cause: "oom"}, true},
		"panic":                  {loud, Start{PID: 11, Group: "pod", OOMKills: 1}, Death{"panic", "panic: no more\n\tof this"}, true},
		"a name that is a path":  {"../../etc/passwd", Start{PID: 11}, Death{Cause: "killed"}, true},
		"a name with a null":     {"a\x00b", Start{PID: 11}, Death{Cause: "killed"}, true},
		"another's, still there": {loud, Start{PID: 10, Ticks: 5}, Death{}, false},
	} {
		if got, ok := k.CauseOf(tc.worker, tc.start); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, tc.want, tc.ok)
		}
	}
}

// Whatever a file is called, the log names the file that was in progress at the end; of a
// very long name it keeps the end.
func TestCrashLogKeepsTheCurrentFiles(t *testing.T) {
	t.Parallel()
	worker := fmt.Sprintf("test-%d-files", os.Getpid())
	r := must.Get(createLog(worker))(t)
	t.Cleanup(func() { Discard(worker) })
	r.Note(Slots-1, 1<<40, "in the last slot")
	if got := FilesOf(worker); len(got) != 1 || got[1<<40] != "in the last slot" {
		t.Errorf("files in progress = %v", got)
	}
	rapid.Check(t, func(rt *rapid.T) {
		want := map[int64]string{}
		for slot := range Slots {
			r.Note(slot, 0, "")
		}
		for slot := range rapid.IntRange(0, 5).Draw(rt, "items") {
			item := int64(slot)*1000 + 1
			name := rapid.OneOf(rapid.String(), rapid.StringMatching(`(data/[^/]*){0,60}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(rt, "name")
			r.Note(slot, item, "before")
			r.Note(slot, item, name)
			if name != "" {
				want[item] = strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", "\uFFFD"), "\uFFFD")
			}
		}
		got := FilesOf(worker)
		if len(got) != len(want) {
			rt.Fatalf("%d files in progress, want %d: %v", len(got), len(want), got)
		}
		for item, name := range want {
			h := got[item]
			cut := len(name) > slotSize/8 && strings.HasSuffix(name, h) && h != ""
			if h != name && !cut {
				rt.Fatalf("item %d: %q, want %q", item, h, name)
			}
		}
	})
}

// This very process lives; one that was started and has ended does not, not even
// before it has been waited for.
func TestRealProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		if h := Linux().host(); h != "" {
			t.Errorf("host = %q where the kernel says nothing", h)
		}
		return
	}
	k := Linux()
	if k.host() == "" {
		t.Error("this host has no name")
	}
	if started, err := k.startTime(os.Getpid()); err != nil || started <= 0 {
		t.Errorf("this process started at %d, %v", started, err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^$")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	if _, err := out.Read(make([]byte, 1<<10)); err != nil { // "PASS": it is about to end
		t.Fatal(err)
	}
	for err == nil {
		_, err = k.startTime(cmd.Process.Pid)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the ended process: %v", err)
	}
	must.Do(t, cmd.Wait())
}
