package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// command runs a program and returns what it prints.
func command(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// commitAll commits what has changed in a checkout.
func commitAll(t testing.TB, dir string) {
	t.Helper()
	command(t, dir, "git", "add", "-A")
	command(t, dir, "git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "Test")
}

// checkout makes a tree of its own of this one, with what is not committed yet, in which
// versions are described.
func checkout(t testing.TB, dir string, versions ...string) {
	t.Helper()
	root := command(t, "", "git", "rev-parse", "--show-toplevel")
	root = strings.TrimSpace(root)
	command(t, root, "git", "clone", "-q", "--no-tags", ".", dir)
	if diff := command(t, root, "git", "diff", "--binary", "HEAD"); diff != "" {
		write(t, dir+".diff", diff)
		command(t, dir, "git", "apply", dir+".diff")
	}
	for _, page := range []string{"CHANGELOG.md", "docs/upgrading.md"} {
		text := string(get(os.ReadFile(filepath.Join(dir, page)))(t))
		for _, version := range versions {
			text += "\n## [" + version + "]\n"
		}
		write(t, filepath.Join(dir, page), text)
	}
	commitAll(t, dir)
}

// theRelease is v1.2.3 for two systems, made once for all tests.
type theRelease struct{ src, out, key string }

func released(t testing.TB) theRelease {
	t.Helper()
	made.once.Do(func() {
		made.src, made.out, made.key = filepath.Join(made.dir, "a"), filepath.Join(made.dir, "dist"), filepath.Join(made.dir, "key")
		checkout(t, made.src, "1.2.3", "1.2.4")
		command(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made.key)
		made.ok = makes(t, made.src, made.out, "-version", "v1.2.3", "-key", made.key) == nil
	})
	if !made.ok {
		t.Fatal("there is no release to test")
	}
	return made.theRelease
}

var made struct {
	theRelease

	once sync.Once
	dir  string
	ok   bool
}

func makes(t testing.TB, src, out string, args ...string) error {
	t.Helper()
	err := run(context.Background(), append([]string{"-src", src, "-out", out, "-only", `(linux|windows)_amd64|oci`}, args...))
	t.Logf("release: %v", err)
	return err
}

func TestMain(m *testing.M) {
	made.dir = get(os.MkdirTemp("", "farol-release-"))(&testing.T{})
	code := m.Run()
	_ = os.RemoveAll(made.dir)
	os.Exit(code)
}

// Anyone who builds a version again, in another folder, gets the same bytes: so a published
// file can be compared with its sources.
func TestTwoReleasesAreTheSame(t *testing.T) {
	r := released(t)
	again := filepath.Join(t.TempDir(), "another", "folder")
	command(t, "", "git", "clone", "-q", r.src, again)
	out := filepath.Join(t.TempDir(), "dist")
	if err := makes(t, again, out, "-version", "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	sums := func(dir string) []string {
		return strings.Split(string(get(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t)), "\n")
	}
	if diff := cmp.Diff(sums(r.out), sums(out)); diff != "" {
		t.Errorf("the second release differs (-first +second):\n%s", diff)
	}
	var names []string
	for _, line := range sums(out) {
		if _, name, found := strings.Cut(line, "  "); found {
			names = append(names, name)
		}
	}
	want := []string{
		"LICENSE", "THIRD_PARTY_NOTICES", "farol_1.2.3_linux_amd64", "farol_1.2.3_linux_amd64.cdx.json", "farol_1.2.3_linux_amd64.deb",
		"farol_1.2.3_linux_amd64.rpm", "farol_1.2.3_oci.tar", "farol_1.2.3_windows_amd64.exe", "farol_1.2.3_windows_amd64.exe.cdx.json",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// The program knows its version, and its commit.
func TestProgramHasVersion(t *testing.T) {
	r := released(t)
	commit := strings.TrimSpace(command(t, r.src, "git", "rev-parse", "HEAD"))
	if got := command(t, "", filepath.Join(r.out, "farol_1.2.3_linux_amd64"), "version"); !strings.HasPrefix(got, "farol v1.2.3 (") || !strings.Contains(got, commit+")") {
		t.Errorf("farol version prints %q", got)
	}
}

// A page of docs/upgrading.md says how to check the signature; what was changed since
// does not pass.
func TestSignatureHolds(t *testing.T) {
	r := released(t)
	signers := filepath.Join(t.TempDir(), "signers")
	write(t, signers, "release@example.org "+string(get(os.ReadFile(r.key+".pub"))(t)))
	verify := func(text string) error {
		c := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release@example.org", "-n", "farol", "-s", filepath.Join(r.out, "SHA256SUMS.sig"))
		c.Stdin = strings.NewReader(text)
		return c.Run()
	}
	sums := string(get(os.ReadFile(filepath.Join(r.out, "SHA256SUMS")))(t))
	if err := verify(sums); err != nil {
		t.Errorf("the signature does not hold: %v", err)
	}
	if err := verify(sums + "0  another\n"); err == nil {
		t.Error("the signature holds for other checksums")
	}
	command(t, r.out, "sha256sum", "--check", "--quiet", "SHA256SUMS")
}

// The list of what is linked in is that of the toolchain.
func TestBillOfMaterialsIsComplete(t *testing.T) {
	r := released(t)
	var bom struct{ Components []component }
	if err := json.Unmarshal(get(os.ReadFile(filepath.Join(r.out, "farol_1.2.3_linux_amd64.cdx.json")))(t), &bom); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}`, "./cmd/farol")
	c.Dir, c.Env = r.src, append(c.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=")
	var got []string
	for _, c := range bom.Components {
		if c.Name != "std" {
			got = append(got, c.Name+" "+c.Version)
		}
		if c.PURL != "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B") {
			t.Errorf("%s has the package URL %s", c.Name, c.PURL)
		}
	}
	want := strings.FieldsFunc(string(get(c.Output())(t)), func(r rune) bool { return r == '\n' })
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("modules (-linked +listed):\n%s", diff)
	}
}

// What nobody could make again, or read about, is not released.
func TestRefusedReleases(t *testing.T) {
	src, out := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "dist")
	checkout(t, src, "1.2.3")
	refused := func(why string, args ...string) {
		t.Helper()
		if err := makes(t, src, out, args...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v: %v, want %q", args, err, why)
		}
	}
	refused("the commit has no tag: tag it, or give VERSION")
	refused(`version "1.2.3" must be like v1.2.3`, "-version", "1.2.3")
	refused("CHANGELOG.md has no section ## [1.2.30]", "-version", "v1.2.30")
	command(t, src, "git", "tag", "v9.9.9")
	refused("docs/upgrading.md has no section ## [9.9.9]")
	write(t, filepath.Join(src, "new.go"), "package new\n")
	refused("changes that no commit has", "-version", "v1.2.3")
	commitAll(t, src)
	write(t, filepath.Join(out, "old"), "")
	refused("is not empty", "-version", "v1.2.3-rc.1")
}
