package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/browser"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// site serves pages under the policy that the console has.
func site(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	page := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "+
				"require-trusted-types-for 'script'; trusted-types farol")
			fmt.Fprintf(w, `<!doctype html><html lang="en"><head><title>Page</title><meta name="viewport" content="width=device-width">
				<link rel="stylesheet" href="/style.css"></head><body><main><h1>Page</h1>%s</main></body></html>`, body)
		})
	}
	file := func(path, kind, text string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, text)
		})
	}
	file("/style.css", "text/css", `
		:root { color-scheme: light dark; background: white; color: black }
		.pale { color: #ddd }
		.wide { width: 600px }
		.small { width: 10px; height: 10px; padding: 0; border: 0 }
		.cover { position: fixed; inset: 0; background: white }
		@media (prefers-color-scheme: dark) { :root { background: black; color: white } }`)
	file("/favicon.ico", "image/png", "")
	file("/later.js", "text/javascript", `
		setTimeout(() => document.querySelector(".cover").remove(), 1000)
		document.querySelector("button").addEventListener("click", () => { document.querySelector("output").textContent = "clicked " + document.querySelector("input").value })
		addEventListener("keydown", e => { if (e.target.tagName != "INPUT") document.querySelector("output").textContent = "key " + e.key })`)
	file("/throws.js", "text/javascript", `console.error("said", 7); throw new Error("not caught")`)
	file("/writes.js", "text/javascript", `document.querySelector("p").innerHTML = "<b>text</b>"`)
	page("/plain", `<p>All is well.</p>`)
	page("/pale", `<p class="pale">One can hardly read this.</p>`)
	page("/wide", `<p class="wide">wide</p>`)
	page("/small", `<button class="small" aria-label="one"></button><button class="small" aria-label="two"></button>`)
	page("/later", `<label>Name <input value="before"></label> <button>Do it</button> <output></output><div class="cover"></div><script src="/later.js"></script>`)
	page("/throws", `<script src="/throws.js"></script>`)
	page("/writes", `<p>text</p><script src="/writes.js"></script>`)
	page("/inline", `<p>text</p><script>document.title = "changed"</script>`)
	page("/missing", `<script src="/no-such.js"></script>`)
	page("/sign-in/secret", `<form method="post"><button>Sign in</button></form>`)
	mux.HandleFunc("POST /sign-in/secret", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "who", Value: "ann", Path: "/"})
		http.Redirect(w, r, "/who", http.StatusSeeOther)
	})
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, r *http.Request) {
		who, err := r.Cookie("who")
		if err != nil {
			fmt.Fprint(w, "nobody")
			return
		}
		fmt.Fprintln(w, "it is", who.Value)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// A page is used by what it says, at the time it is ready.
func TestPageIsUsedAsAPersonDoes(t *testing.T) {
	t.Parallel()
	b := browser.Open(t, site(t))
	b.Go("/later")
	b.Fill("Name", "after")
	b.Click("button", "Do it") // which is covered at first
	b.Shows("clicked after")
	b.Press("\t")
	b.Press("j")
	b.Shows("key j")
}

// What a page reports fails its test, unless the test says that it knows.
func TestProblemsAreCollected(t *testing.T) {
	t.Parallel()
	b := browser.Open(t, site(t))
	b.Go("/plain")
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("a page without faults has %q", problems)
	}
	for path, want := range map[string][]string{
		"/throws":  {"said 7", "Error: not caught"},
		"/writes":  {"TrustedHTML", "TrustedHTML"}, // by the policy, and as an exception
		"/inline":  {"Content Security Policy"},
		"/missing": {"404 (Not Found)"},
	} {
		b.Go(path)
		got := b.Problems()
		for _, text := range want {
			if !strings.Contains(strings.Join(got, "\n"), text) {
				t.Errorf("%s has the problems %q, want %q", path, got, text)
			}
		}
	}
	b.Expect(1, "404 (Not Found)", "/no-such.js")
	b.Expect(1, "404 (Not Found)", "/elsewhere")
	for i, want := range []int{0, 1} { // the first is expected, and the second is another one
		b.Go("/missing")
		other := func(problem string) bool { return !strings.Contains(problem, "404 (Not Found)") }
		if got := slices.DeleteFunc(b.Problems(), other); len(got) != want {
			t.Errorf("the %d. time, a tab has the problems %q, want %d", i+1, got, want)
		}
	}
	b.Network(browser.Cut)
	b.Until("the request to fail", `fetch("/plain").then(() => false, () => true)`)
	if got := b.Problems(); len(got) == 0 || !strings.Contains(got[0], "ERR_INTERNET_DISCONNECTED") {
		t.Errorf("a request without a network has the problems %q", got)
	}
}

// reporter stands for a test that must fail.
type reporter struct {
	testing.TB
	errors []string
	ends   []func()
}

func (r *reporter) Cleanup(f func())  { r.ends = append(r.ends, f) }
func (r *reporter) Error(list ...any) { r.errors = append(r.errors, fmt.Sprint(list...)) }
func (r *reporter) Failed() bool      { return len(r.errors) > 0 }

func TestProblemFailsTheTest(t *testing.T) {
	t.Parallel()
	r := &reporter{TB: t}
	b := browser.Open(r, site(t))
	b.Go("/throws")
	for _, end := range r.ends {
		end()
	}
	if all := strings.Join(r.errors, "\n"); !strings.Contains(all, "not caught") || !strings.Contains(all, "said 7") {
		t.Errorf("the test has the errors %q", r.errors)
	}
}

// Two people do not see each other's sessions.
func TestEachTabHasItsOwnCookies(t *testing.T) {
	t.Parallel()
	at := site(t)
	ann, other := browser.Open(t, at), browser.Open(t, at)
	ann.SignIn("/sign-in/secret")
	ann.Shows("it is ann")
	other.Go(at + "/who")
	other.Shows("nobody")
}

// The rules are those of level AA, with all that axe leaves out by itself.
func TestAxeFindsWhatIsHardToUse(t *testing.T) {
	t.Parallel()
	b := browser.Open(t, site(t))
	for _, c := range []struct {
		path string
		dark bool
		want []string // rule and selector
	}{
		{"/plain", false, nil},
		{"/plain", true, nil},
		{"/pale", false, []string{"color-contrast p"}},
		{"/pale", true, nil},
		{"/small", false, []string{`target-size button[aria-label="one"]`, `target-size button[aria-label="two"]`}},
	} {
		b.Dark(c.dark)
		b.Go(c.path)
		var got []string
		for _, v := range b.Axe() {
			got = append(got, v.Rule+" "+v.Selector)
			if !strings.Contains(v.String(), "Fix") || !strings.Contains(v.String(), "<") {
				t.Errorf("a person cannot find what to mend by %s", v)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, dark %v (-want +got):\n%s", c.path, c.dark, diff)
		}
		if again := b.Axe(); len(again) != len(got) {
			t.Errorf("%s: axe finds %v, then %v", c.path, got, again)
		}
	}
}

func TestPageMayNotScrollSideways(t *testing.T) {
	t.Parallel()
	b := browser.Open(t, site(t))
	b.Go("/wide")
	if wide := b.Sideways(); len(wide) > 0 {
		t.Errorf("at 1440 pixels: %q", wide)
	}
	b.Size(320, 800)
	if wide := b.Sideways(); len(wide) != 2 || !strings.Contains(wide[1], `class="wide"`) {
		t.Errorf("at 320 pixels: %q", wide)
	}
}

// What is said about the browser holds for its pages.
func TestBrowserIsChanged(t *testing.T) {
	t.Parallel()
	b := browser.Open(t, site(t))
	b.Script(false)
	b.Go("/throws")
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("without scripts, one has reported %q", problems)
	}
	if found := b.Axe(); len(found) > 0 {
		t.Errorf("without scripts: %s", found)
	}
	b.Script(true)
	b.Go("/plain")
	took := `(from => fetch("/plain").then(() => performance.now() - from))(performance.now())`
	b.Network(browser.Slow)
	if ms := browser.Value[float64](b, took); ms < 400 {
		t.Errorf("a slow answer took %v ms", ms)
	}
	b.Network(browser.Fast)
	b.Size(320, 800)
	b.Dark(true)
	got := browser.Value[[]any](b, `[innerWidth, matchMedia("(prefers-color-scheme: dark)").matches, matchMedia("(prefers-reduced-motion)").matches]`)
	if diff := cmp.Diff([]any{320.0, true, true}, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// A picture is kept under the name of its test, where the run says.
func TestScreenshotIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	t.Setenv("FAROL_TEST_SCREENSHOTS", dir)
	b := browser.Open(t, site(t))
	b.Go("/plain")
	path := b.Screenshot("plain, light")
	image, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(image), "\x89PNG") || path != filepath.Join(dir, "TestScreenshotIsKept-plain,-light.png") {
		t.Errorf("%s: %v, %d bytes", path, err, len(image))
	}
}
