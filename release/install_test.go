package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	systemUnits = "usr/lib/systemd/system"
	settings    = "etc/farol/farol.env"
)

// A package is installed, upgraded and removed in an empty system that has a shell: what
// an operator has set stays, and in the end only that is left.
func TestPackages(t *testing.T) {
	r := released(t)
	next := filepath.Join(t.TempDir(), "next")
	command(t, "", "git", "clone", "-q", r.src, next)
	write(t, filepath.Join(next, "release/systemd/farol.env"), "# of the next version\n")
	commitAll(t, next)
	out := filepath.Join(t.TempDir(), "dist")
	if err := makes(t, next, out, "-version", "v1.2.4"); err != nil {
		t.Fatal(err)
	}
	for form, tool := range map[string]struct {
		install, remove func(root, file string) []string
	}{
		"deb": {
			func(root, file string) []string {
				return []string{"dpkg", "--root=" + root, "--force-confold", "-i", file}
			},
			func(root, _ string) []string { return []string{"dpkg", "--root=" + root, "-r", "farol"} },
		},
		"rpm": {
			func(root, file string) []string { return []string{"rpm", "--root", root, "--nodeps", "-U", file} },
			func(root, _ string) []string { return []string{"rpm", "--root", root, "-e", "farol"} },
		},
	} {
		t.Run(form, func(t *testing.T) {
			root := emptySystem(t)
			do := func(args []string) { t.Helper(); command(t, "", args[0], args[1:]...) }
			do(tool.install(root, filepath.Join(r.out, "farol_1.2.3_linux_amd64."+form)))
			if got := command(t, "", "chroot", root, "/usr/bin/farol", "version"); !strings.HasPrefix(got, "farol v1.2.3 ") {
				t.Errorf("installed is %q", got)
			}
			for path, mode := range map[string]os.FileMode{settings: 0o600, "etc/farol/credentials": os.ModeDir | 0o700, "usr/bin/farol": 0o755} {
				if info := get(os.Stat(filepath.Join(root, path)))(t); info.Mode() != mode {
					t.Errorf("%s has the mode %v, want %v", path, info.Mode(), mode)
				}
			}
			unitsFit(t, root)

			write(t, filepath.Join(root, settings), "FAROL_LOG_LEVEL=debug\n")
			do(tool.install(root, filepath.Join(out, "farol_1.2.4_linux_amd64."+form)))
			if got := command(t, "", "chroot", root, "/usr/bin/farol", "version"); !strings.HasPrefix(got, "farol v1.2.4 ") {
				t.Errorf("upgraded is %q", got)
			}
			if got := string(get(os.ReadFile(filepath.Join(root, settings)))(t)); got != "FAROL_LOG_LEVEL=debug\n" {
				t.Errorf("the upgrade has replaced the settings by %q", got)
			}

			do(tool.remove(root, ""))
			left := command(t, root, "find", ".", "-iname", "*farol*", "-not", "-path", "./var/lib/*", "-not", "-path", "./etc/farol*")
			if left != "" {
				t.Errorf("removed, it leaves:\n%s", left)
			}
			if kept := command(t, root, "find", "etc/farol", "-type", "f"); !strings.HasPrefix(kept, settings) {
				t.Errorf("of what was set there is %q", kept)
			}
		})
	}
}

// emptySystem is a root directory in which scripts of packages can run.
func emptySystem(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run it as root: only root can install packages and change the root directory")
	}
	root := t.TempDir()
	busybox := get(exec.LookPath("busybox"))(t)
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "", "cp", busybox, filepath.Join(root, "bin/sh"))
	for _, dir := range []string{"updates", "info", "triggers"} {
		write(t, filepath.Join(root, "var/lib/dpkg", dir, ".keep"), "")
	}
	write(t, filepath.Join(root, "var/lib/dpkg/status"), "")
	return root
}

var exposure = regexp.MustCompile(`Overall exposure level for (\S+): ([0-9.]+)`)

// unitsFit checks the units as they are installed: systemd understands them, and they
// may do little.
func unitsFit(t testing.TB, root string) {
	t.Helper()
	// What is not ours is not there.
	for _, name := range []string{"sysinit.target", "basic.target", "shutdown.target", "network-online.target", "multi-user.target"} {
		target := filepath.Join(root, systemUnits, name)
		write(t, target, "[Unit]\nDescription="+name+"\n")
		defer os.Remove(target)
	}
	units := []string{"farol-work@large.service", "farol-schedule.service", "farol-mirror.service", "farol-serve.service"}
	if out := command(t, "", "systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=yes", "--root=" + root}, units...)...); out != "" {
		t.Errorf("systemd says of the units:\n%s", out)
	}
	for _, unit := range units {
		out := command(t, "", "systemd-analyze", "security", "--offline=yes", "--root="+root, "--no-pager", unit)
		level := exposure.FindStringSubmatch(out)
		if level == nil {
			t.Fatalf("systemd says of %s:\n%s", unit, out)
		}
		if n := get(strconv.ParseFloat(level[2], 64))(t); n > 2 {
			t.Errorf("%s is exposed at level %v, want 2 at most:\n%s", unit, n, out)
		}
	}
}
