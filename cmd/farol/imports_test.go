package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// mostModules bounds what may go wrong in the production program that others wrote. The REST API,
// second factors and mail have brought five, OpenID providers three, the credentials of platforms seven, SQS one, and traces nine.
const mostModules = 85

const ours = "github.com/farol-preservation/farol"

// linkedModules are the modules in the production program, each with its packages.
func linkedModules(t *testing.T) map[string][]string {
	t.Helper()
	out := must.Get(exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", ".").Output())(t)
	modules := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if module, pkg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); module != "" {
			modules[module] = append(modules[module], pkg)
		}
	}
	return modules
}

// The production program has no test server in it, and no client of a service that it
// does not use: these came in with an S3 gateway and nsqd.
func TestProductionProgramHasNoDevelopmentModules(t *testing.T) {
	t.Parallel()
	modules := linkedModules(t)
	for _, pkg := range modules[ours] {
		if strings.HasPrefix(pkg, ours+"/internal/rigs/devstack") || strings.HasPrefix(pkg, ours+"/internal/rigs/testenv") {
			t.Errorf("%s is in the production program", pkg)
		}
	}
	delete(modules, ours)
	for _, forbidden := range []string{
		"github.com/versity/versitygw", "github.com/nsqio/nsq", "github.com/hashicorp/", "github.com/Azure/", "github.com/gofiber/", "github.com/valyala/",
		"github.com/nats-io/", "github.com/rabbitmq/", "github.com/segmentio/", "github.com/go-ldap/", "github.com/DataDog/", "modernc.org/",
		"github.com/stretchr/", "pgregory.net/", "github.com/rogpeppe/", "github.com/compose-spec/",
	} {
		for module := range modules {
			if strings.HasPrefix(module, forbidden) {
				t.Errorf("%s is in the production program", module)
			}
		}
	}
	if n := len(modules); n > mostModules || n < 20 {
		t.Errorf("%d modules are in the production program, want %d at most", n, mostModules)
	}
}

// What go.mod lists, a scanner reports: so it has what is linked, and what the tests cannot do
// without. Servers for tests and development are in the module dev.
func TestModuleListsWhatTheProgramLinks(t *testing.T) {
	t.Parallel()
	forTests := []string{"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema/v6", "pgregory.net/rapid"}
	text := must.Get(exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output())(t)
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Require) < 20 {
		t.Fatalf("%d modules are in go.mod, %v", len(file.Require), err)
	}
	linked := linkedModules(t)
	for _, m := range file.Require {
		if !m.Indirect && linked[m.Path] == nil && !slices.Contains(forTests, m.Path) {
			t.Errorf("go.mod lists %s, which farol does not link", m.Path)
		}
	}
}
