// Package farol_test checks what no single package can: which may import which.
package farol_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farol-preservation/farol"

// mayImport says which of our packages each of our packages may import. The longest
// path that has a rule counts for a package. "registry/..." stands for registry and all
// packages below it. Tests may also import internal.
func mayImport() map[string][]string {
	base := []string{"bag/...", "claim/...", "fault", "format", "progress", "registry/...", "retry", "storage", "storage/ability", "storage/inventory", "storage/proof", "virus"}
	with := func(more ...string) []string { return append(slices.Clone(base), more...) }
	commands := func(more ...string) []string {
		return append([]string{"internal/commands/cli", "internal/commands/connect", "internal/human", "internal/commands/remote", "internal/process/settings", "registry"}, more...)
	}
	api := []string{"claim/...", "registry/...", "retry", "web/access", "web/reply", "web/request"}
	return map[string][]string{
		"bag":         {"bag/..."},
		"bag/digest":  nil,
		"bag/finding": nil,
		"bag/naming":  nil,
		"bag/profile": {"bag/digest", "bag/tagfile"},
		"bag/tagfile": {"bag/digest", "bag/finding", "bag/naming"},
		"client":      nil, // it is for programs of others
		"fault":       nil,
		"format":      nil,
		"migrations":  nil,
		"record":      nil,
		"retry":       nil,
		"span":        nil,
		"virus":       nil,

		"registry":          nil,
		"registry/dial":     nil,
		"registry/browse":   {"registry", "registry/requests"},
		"registry/exports":  {"registry", "registry/premis"},
		"registry/fixity":   {"registry"},
		"registry/outbox":   {"registry"},
		"registry/plans":    {"registry"},
		"registry/premis":   {"registry"},
		"registry/reports":  {"registry"},
		"registry/people":   {"registry"},
		"registry/requests": {"registry"},
		"registry/formats":  {"registry"},
		"registry/topiclog": {"registry"},
		"registry/upkeep":   {"registry", "registry/requests"},

		"claim":               {"fault", "registry", "registry/dial", "retry"},
		"storage":             {"fault", "registry", "retry", "storage/..."},
		"storage/ability":     {"storage/wire"},
		"storage/credentials": {"fault"},
		"storage/events":      {"retry", "storage/credentials"},
		"storage/inventory":   {"storage"},
		"storage/lock":        {"fault", "storage/wire"},
		"storage/proof":       nil,
		"storage/setup":       {"storage/lock", "storage/wire"},
		"storage/wire":        {"fault", "retry", "storage/credentials"},
		"progress":            {"fault", "registry", "retry"},
		"explain":             {"claim/...", "explain/estimate", "fault", "internal/human", "progress", "registry/..."},
		"explain/estimate":    {"registry"},

		// The runner is given its steps and knows none.
		"pipeline":                  with("pipeline/cause", "pipeline/copies"),
		"pipeline/cause":            base,
		"pipeline/copies":           with("pipeline/cause"),
		"pipeline/lists":            with("pipeline/cause", "pipeline/copies"),
		"pipeline/many":             nil,
		"pipeline/interim":          with("pipeline/cause", "pipeline/lists"),
		"pipeline/restore":          with("pipeline", "pipeline/cause", "pipeline/copies", "pipeline/lists", "pipeline/many"),
		"pipeline/remove":           with("pipeline", "pipeline/cause", "pipeline/copies", "pipeline/many"),
		"pipeline/ingest":           with("pipeline", "pipeline/cause", "pipeline/copies", "pipeline/interim", "pipeline/lists", "pipeline/many"),
		"pipeline/steps":            with("pipeline", "pipeline/ingest", "pipeline/remove", "pipeline/restore"),
		"pipeline/fixity":           with("pipeline/cause", "pipeline/copies"),
		"pipeline/upkeep":           with("pipeline/cause", "pipeline/copies", "pipeline/interim", "pipeline/lists", "pipeline/many", "pipeline/restore", "storage/events"),
		"pipeline/upkeep/reconcile": with("pipeline/copies", "pipeline/upkeep"),
		"pipeline/pipelinetest":     with("pipeline", "internal/rigs/testenv"), // it is for tests

		"nsqcompat":      {"registry/...", "retry"},
		"web/access":     {"registry", "registry/people", "web/limit", "web/permission"},
		"web/limit":      nil,
		"web/permission": {"registry"},
		"web/auth":       {"registry", "registry/people", "web/limit"},
		"web/ops":        {"registry", "internal/human", "registry/browse", "web/access", "web/auth", "web/limit", "web/permission", "web/reply", "web/request"},
		"web/oidc":       {"registry/people", "web/auth"},
		"web/signin":     {"registry", "registry/people", "web/access", "web/auth", "web/oidc"},
		// Pages call down into the frame and its pieces. Those of one resource call none of another;
		// what is about all of them is in web/console.
		"web/console":          {"explain", "pipeline/interim", "registry", "web/api", "web/console/...", "web/ops", "web/permission"},
		"web/console/accounts": {"registry", "registry/people", "web/api/accounts", "web/console/frame", "web/console/words", "web/permission"},
		"web/console/archive":  {"registry", "registry/exports", "web/console/frame", "web/console/live", "web/console/picture", "web/console/words", "web/ops", "web/permission"},
		"web/console/queue":    {"explain", "internal/human", "pipeline/interim", "registry", "web/api/queue", "web/console/frame", "web/console/live", "web/console/picture", "web/console/words", "web/ops", "web/permission"},
		"web/console/frame":    {"registry/people", "web/access", "web/api", "web/auth", "web/console/live", "web/console/words", "web/ops", "web/permission", "web/reply"},
		"web/console/live":     {"explain", "registry", "registry/browse", "registry/people", "web/api", "web/console/words", "web/ops", "web/permission", "web/reply"},
		"web/console/picture":  {"registry", "web/console/words"},
		"web/console/words":    {"internal/human", "registry", "web/reply"},
		"web/front":            {"registry/people", "web/access", "web/api", "web/console", "web/memberapi", "web/ops", "web/reply", "web/signin"},
		"web/api":              {"pipeline/interim", "registry", "web/api/...", "web/ops"},
		// What the resources share is in answer; none of them imports another one.
		"web/api/answer":   {"bag", "pipeline/interim", "progress", "registry", "registry/browse", "registry/people", "storage", "web/access", "web/auth", "web/oidc", "web/ops", "web/permission"},
		"web/api/accounts": {"registry", "registry/browse", "registry/outbox", "registry/people", "web/access", "web/api/answer", "web/auth", "web/ops", "web/permission"},
		"web/api/archive":  {"bag", "registry/...", "storage", "web/access", "web/api/answer", "web/ops", "web/permission"},
		"web/api/queue":    {"explain/...", "pipeline/interim", "progress", "registry/...", "storage/ability", "web/access", "web/api/answer", "web/ops", "web/permission"},
		"web/mail":         {"registry/..."},
		"web/memberapi":    {"registry/...", "web/access", "web/permission", "web/reply"},
		"web/arrivals":     {"web/access", "web/reply", "web/request"},
		"web/request":      nil,
		"web/reply":        {"web/access", "web/request"},
		"web/pull":         api,
		"web/lease":        api,

		// The test environment brings databases up to date and identifies formats.
		"internal":               {"format", "migrations", "retry"},
		"internal/process/build": nil,
		"internal/commands/cli":  {"internal/human", "registry", "storage"},

		// A group of commands knows no other group.
		"internal/commands/values":    commands(),
		"internal/commands/accounts":  commands("client", "internal/commands/op", "internal/commands/values", "registry/people", "storage/setup", "web/permission"),
		"internal/commands/items":     commands("client", "explain/...", "internal/commands/op", "internal/commands/values", "pipeline/interim", "progress", "registry/...", "web/api"),
		"internal/commands/op":        commands("client", "internal/commands/values", "web/access", "web/ops"),
		"internal/commands/archive":   commands("client", "format", "internal/commands/op", "internal/commands/values", "pipeline/fixity", "pipeline/upkeep", "registry/...", "storage"),
		"internal/commands/buckets":   commands("fault", "internal/commands/op", "storage", "storage/setup"),
		"internal/commands/control":   commands("client", "internal/commands/op", "internal/commands/values"),
		"internal/commands/validate":  commands("bag/...", "internal/commands/op"),
		"internal/commands/mails":     commands("internal/commands/op", "registry/...", "web/mail"),
		"internal/commands/reporting": commands("client", "internal/commands/op", "internal/commands/values", "registry/exports", "registry/premis", "registry/reports"),

		"internal/commands/connect":  {"format", "internal/process/build", "internal/commands/cli", "internal/process/settings", "progress", "registry", "registry/dial", "registry/stores", "storage", "storage/ability", "storage/inventory"},
		"internal/human":             nil,
		"internal/commands/handlers": {"claim", "internal/process/build", "internal/commands/connect", "internal/process/settings", "nsqcompat", "pipeline/...", "progress", "registry", "storage", "web/api", "web/ops"},
		"internal/commands/remote":   {"client", "internal/commands/cli", "internal/commands/connect", "internal/commands/handlers", "internal/human", "internal/process/settings", "registry", "registry/people", "web/access", "web/api", "web/ops"},
		"internal/process/memory":    nil,
		"internal/process/tracing":   {"claim", "internal/process/settings", "storage"},
		"internal/process/monitor":   {"claim", "internal/commands/cli", "internal/process/settings", "nsqcompat", "pipeline/...", "registry/...", "storage", "web/pull"},
		"internal/rigs/reference":    nil, // it is for tests
		"internal/process/settings":  with("internal/human", "internal/process/scalein", "storage/credentials", "pipeline", "pipeline/ingest", "pipeline/steps"),
		"preflight":                  with("internal/human", "internal/process/memory", "internal/process/settings", "migrations", "pipeline", "storage/credentials", "storage/setup"),
		"cmd":                        with("explain", "internal/...", "migrations", "nsqcompat", "pipeline/...", "preflight", "storage/events", "web/..."),
	}
}

// mayUse tells which of our packages may import a library: whatever speaks to
// the outside is in one place.
func mayUse() map[string][]string {
	return map[string][]string{
		"github.com/aws/":              {"storage", "internal"},
		"github.com/redis/":            {"progress", "cmd", "internal", "preflight"},
		"github.com/jackc/pgx/":        {"claim", "registry", "migrations", "nsqcompat", "web", "cmd", "internal", "preflight"},
		"database/sql":                 {"migrations"},
		"github.com/danielgtaylor/":    {"web/ops"},
		"github.com/pquerna/otp":       {"web/auth"},
		"github.com/boombuler/":        {"web/signin"},
		"golang.org/x/crypto":          {"web/auth"},
		"golang.org/x/time":            {"web/limit"},
		"golang.org/x/oauth2":          {"web/oidc"},
		"github.com/coreos/":           {"web/oidc"},
		"github.com/go-jose/":          {"internal/rigs/testenv"},
		"github.com/nsqio/":            {"nsqcompat"},
		"github.com/wneessen/go-mail":  {"web"},
		"github.com/cenkalti/":         {"retry"},
		"github.com/richardlehane/":    {"format"},
		"github.com/spf13/cobra":       {"cmd", "internal/commands/cli", "internal/commands", "internal/commands/connect", "internal/commands/remote"},
		"github.com/caarlos0/env/":     {"cmd", "internal/commands/connect", "internal/process/settings"},
		"github.com/pressly/goose/":    {"migrations"},
		"github.com/prometheus/":       {"cmd", "internal/process/monitor"},
		"go.opentelemetry.io/otel/sdk": {"internal/process/tracing"},
		"go.opentelemetry.io/proto":    {"internal/process/tracing", "internal/rigs/testenv"},
		"pgregory.net/rapid":           nil, // tests only
		"github.com/google/go-cmp/":    nil,
		"github.com/rogpeppe/go-int":   nil,
		"github.com/santhosh-tekuri/":  nil,
	}
}

// source is one Go file of the module.
type source struct {
	path    string // from the root, with slashes
	rule    string // the longest part of the path that has a rule; or its first directory
	imports []string
	syntax  *ast.File
}

// isTest reports whether only tests use the file.
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || path.Dir(s.path) == "pipeline/pipelinetest"
}

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(name, d)
		case filepath.Ext(name) != ".go" || !strings.ContainsRune(name, filepath.Separator):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(name), syntax: file}
		s.rule = ruleOf(s.path)
		for _, i := range file.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		list = append(list, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// ruleOf is the path of the rule for a package or a file.
func ruleOf(name string) string {
	rule, _, _ := strings.Cut(name, "/")
	for r := range mayImport() {
		if len(r) > len(rule) && in(name, r) {
			rule = r
		}
	}
	return rule
}

// in reports whether a path is one of these, or lies below one.
func in(name string, places ...string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		return name == place || strings.HasPrefix(name, place+"/")
	})
}

// admits reports whether a rule allows a package. All may know what a record is, and make spans.
func admits(allowed []string, name string) bool {
	return name == "record" || name == "span" || slices.ContainsFunc(allowed, func(a string) bool {
		tree, all := strings.CutSuffix(a, "/...")
		return name == a || all && in(name, tree)
	})
}

// skip passes over directories that hold no package of this module.
func skip(name string, d fs.DirEntry) error {
	if name == "." {
		return nil
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "bin" {
		return fs.SkipDir
	}
	return nil
}

// The direction is what lets a package be read, tested and replaced alone.
func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	t.Parallel()
	rules := mayImport()
	for _, s := range sources(t) {
		allowed, known := rules[s.rule]
		if !known && !s.isTest() {
			t.Errorf("%s: no rule says what %s may import", s.path, s.rule)
		}
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/")
			if ours && ruleOf(below) != s.rule && !s.isTest() && !admits(allowed, below) {
				t.Errorf("%s imports %s; %s may import %q of ours", s.path, imported, s.rule, allowed)
			}
		}
	}
}

// A test may use the packages that its own may use, and the real servers.
func TestTestsReachNoHigherThanTheirPackage(t *testing.T) {
	t.Parallel()
	rules := mayImport()
	for _, s := range sources(t) {
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/")
			allowed, ruled := rules[s.rule]
			if !ours || !ruled || !s.isTest() || ruleOf(below) == s.rule || admits(allowed, below) {
				continue
			}
			top, _, _ := strings.Cut(below, "/")
			if in(top, "cmd", "pipeline", "nsqcompat", "web") && !in(s.rule, top) {
				t.Errorf("%s imports %s, which is above %s", s.path, imported, s.rule)
			}
		}
	}
}

func TestEachLibraryIsUsedInItsPlace(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		for _, imported := range s.imports {
			for library, places := range mayUse() {
				if strings.HasPrefix(imported, library) && !in(s.path, places...) {
					t.Errorf("%s imports %s; only %q may", s.path, imported, places)
				}
			}
		}
	}
}

// What a package does is decided by its arguments; cmd alone knows settings,
// which internal/commands/connect reads for its commands. The
// test environment has no caller who could pass it, and the width of a terminal and
// what Go reads itself are no settings.
func TestOnlyCmdReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() || in(s.path, "cmd", "internal/rigs/testenv", "internal/commands/cli", "internal/commands/connect", "internal/process/memory") {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				pkg, _ := call.X.(*ast.Ident)
				if pkg != nil && pkg.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, call.Sel.Name) {
					t.Errorf("%s calls os.%s", s.path, call.Sel.Name)
				}
			}
			return true
		})
	}
}

// Whether this test checks anything at all.
func TestEveryPackageIsLookedAt(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.rule] = true
	}
	for rule := range mayImport() {
		if !seen[rule] {
			t.Errorf("no file of %s was found", rule)
		}
	}
}
