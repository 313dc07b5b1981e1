package main

import (
	"os/exec"
	"strings"
	"testing"
)

// mostModules bounds what may go wrong in the production program that others wrote. The REST API,
// second factors and mail have brought five, and OpenID providers three.
const mostModules = 68

// The production program has no test server in it, and no client of a service that it
// does not use: these came in with an S3 gateway and nsqd.
func TestProductionProgramHasNoDevelopmentModules(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/farol-preservation/farol"
	modules := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		module, pkg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if module != "" && module != ours {
			modules[module] = true
		}
		if strings.HasPrefix(pkg, ours+"/internal/devstack") || strings.HasPrefix(pkg, ours+"/internal/testenv") {
			t.Errorf("%s is in the production program", pkg)
		}
	}
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
