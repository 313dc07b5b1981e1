package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// leaves are the commands that do something, other than cobra's and our children's.
func leaves() (list []*cobra.Command) {
	eachCommand(rootCommand(), func(c *cobra.Command) {
		top := strings.Fields(c.CommandPath() + " ")
		if len(top) < 2 || slices.Contains([]string{"completion", "help", "internal"}, top[1]) {
			return
		}
		if c.HasExample() || !c.HasSubCommands() {
			list = append(list, c)
		}
	})
	return list
}

// One command shows what to expect of the others.
func TestEveryCommandKeepsTheRules(t *testing.T) {
	t.Parallel()
	// These run until they are stopped, or ask nobody's leave: they say what they do in a log.
	services := []string{"farol demo", "farol dev", "farol work", "farol serve"}
	all := leaves()
	if len(all) < 45 {
		t.Fatalf("only %d commands", len(all))
	}
	for _, c := range all {
		path := c.CommandPath()
		top := c
		for top.Parent().HasParent() {
			top = top.Parent()
		}
		has := func(flag string) bool { return c.Flags().Lookup(flag) != nil }
		switch {
		case top.GroupID == "":
			t.Errorf("%s is in no group", path)
		case c.Example == "" || !strings.Contains(c.Example, path):
			t.Errorf("%s has no example", path)
		case c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.HasPrefix(c.Short, "Tell "):
			t.Errorf("%s is described as %q", path, c.Short)
		case !has("json") && !slices.Contains(services, path):
			t.Errorf("%s has no --json", path)
		}
	}
}

// effects are all commands, by what they do to what is kept. Those that change many
// things at once, or take away what does not come back, ask first as caution says.
func effects() map[string][]string {
	return map[string][]string{
		"looks": {
			"validate", "item list", "item show", "item files", "item watch", "item explain", "item next", "plan list", "plan show", "why-not",
			"export list", "object list", "object show", "file list", "file show", "delete list", "delete show", "fixity status", "stage list", "workers",
			"services", "queue list", "queue show", "mirror status", "institution list", "user list", "token list", "schedule list", "check", "doctor", "identify preview",
			"migrate status", "version", "mail queue", "report deposits", "report costs", "report outcomes", "export",
		},
		"runs": {"demo", "dev", "work", "schedule", "read-buckets", "mirror", "serve"},
		// These change one thing, which another command puts back, or only add to what there is.
		"changes one": {
			"item requeue", "item priority", "plan requeue", "plan cancel", "plan priority",
			"restore object", "restore file", "restore approve", "delete request", "delete cancel", "fixity check", "fixity policy", "fixity import",
			"stage add", "stage set", "stage remove", "drain", "services hold", "services release", "institution add", "institution set", "institution cors",
			"user add", "user set", "user reset", "user unlock", "user unlink", "user mail", "user sessions", "user deactivate", "user activate", "token add", "mail test", "schedule run", "schedule pause", "schedule resume", "report count",
		},
		"asks": {
			"bucket create", "requeue", "plan apply", "plan undo", "delete approve", "repair", "identify", "identify apply", "pause", "resume", "token remove", "janitor", "reconcile", "migrate up",
		},
	}
}

// A command that is added is classed by what it does, and has the flags for that.
func TestCommandsThatChangeMuchAskFirst(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{}
	for kind, commands := range effects() {
		for _, name := range commands {
			kinds["farol "+name] = kind
		}
	}
	for _, row := range ops.Rows((&api.API{}).Register) {
		if words := row.Words(); len(words) > 0 {
			kinds["farol "+strings.Join(words, " ")] = map[bool]string{false: "looks", true: "changes one"}[row.Changes()]
		}
	}
	for _, c := range leaves() {
		path := c.CommandPath()
		kind := kinds[path]
		delete(kinds, path)
		yes, dryRun := c.Flags().Lookup("yes") != nil, c.Flags().Lookup("dry-run") != nil
		switch {
		case kind == "":
			t.Errorf("effects has no %s", path)
		case kind == "asks" && (!yes || !dryRun):
			t.Errorf("%s lacks --yes or --dry-run", path)
		case kind != "asks" && yes:
			t.Errorf("%s has --yes, and nothing to ask", path)
		case kind != "asks" && kind != "changes one" && dryRun:
			t.Errorf("%s has --dry-run, and nothing to change", path)
		}
	}
	for path := range kinds {
		t.Errorf("there is no %s", path)
	}
}

// A flag means the same in each command that has it, where it names something.
func TestFlagsMeanOneThing(t *testing.T) {
	t.Parallel()
	meanings := map[string]map[string][]string{}
	for _, c := range leaves() {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			if meanings[f.Name] == nil {
				meanings[f.Name] = map[string][]string{}
			}
			meanings[f.Name][f.Usage] = append(meanings[f.Name][f.Usage], c.CommandPath())
		})
	}
	for _, name := range []string{"stage", "to", "status", "json", "yes", "dry-run", "error-code"} {
		if len(meanings[name]) != 1 && name != "error-code" {
			t.Errorf("--%s means %v", name, meanings[name])
		}
	}
}

// Every flag and argument that takes one of some names offers them.
func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"item list --stage S":            "Store",
		"item list --status s":           "Started",
		"item list --state s":            "Started",
		"item list --action res":         "Restore Object",
		"object list --state d":          "D",
		"file list x --state a":          "A",
		"item list --error-code inv":     "invalid-bag",
		"requeue --to c":                 "Copy To Staging",
		"item requeue 7 --to c":          "Cleanup",
		"plan cancel --stage v":          "Validate",
		"plan requeue --to v":            "Validate",
		"plan requeue --status f":        "Failed",
		"plan show 1 --items ref":        "refused",
		"pause R":                        "Reingest Check",
		"resume R":                       "Receive",
		"stage set Rec":                  "Record",
		"stage add X --after Rec":        "Receive",
		"schedule --jobs read-buckets,j": "read-buckets,janitor",
		"schedule run f":                 "fixity-feed",
		"schedule pause j":               "janitor",
		"fixity policy Stan":             "Standard-VA",
		"fixity check x --target W":      "Wasabi-OR",
		"fixity import x --target G":     "Glacier-VA",
		"restore object x --tier b":      "Bulk",
		"repair --retrieve b":            "Bulk",
		"repair --release a":             "AWS",
		"user add x --role inst":         "institutional_admin",
		"user mail x --fixity d":         "daily",
		"work --stages Store,Re":         "Store,Record",
		"validate x --profile b":         "btr-v1.0",
		"report deposits --by m":         "month",
		"export ev":                      "evidence",
		"report outcomes --by d":         "day",
		"check --write=a":                "all",
		"bucket create --only q":         "quarantine",
		"bucket create --only Glacier-V": "Glacier-VA",
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete"}, strings.Fields(line)...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if !slices.Contains(strings.Split(out.String(), "\n"), want) {
			t.Errorf("%s gives no %q:\n%s", line, want, out.String())
		}
	}
}

// With --json an error is JSON too, of one shape, with the exit code that it has anyway.
func TestErrorsAreJSONToo(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"item list --json --limit 0", "item list --json --wrong", "item show --json seven", "version --json extra", "plan apply --json 1 2", "requeue --json",
		"user add --json x", "item list --json --since yesterday",
	} {
		var plain, asJSON bytes.Buffer
		code := run(context.Background(), strings.Fields(strings.ReplaceAll(line, " --json", "")), &plain)
		if got := run(context.Background(), strings.Fields(line), &asJSON); got != code || code != cli.ExitUsage {
			t.Errorf("%s exits with %d, and with %d", line, got, code)
		}
		var v map[string]any
		if err := json.Unmarshal(asJSON.Bytes(), &v); err != nil || len(v) != 3 || v["error"] == "" || v["next"] == "" || v["exit_code"] != float64(code) {
			t.Errorf("%s: %v: %s", line, err, asJSON.String())
		}
		if strings.HasPrefix(plain.String(), "{") {
			t.Errorf("%s without --json: %s", line, plain.String())
		}
	}
}

// What libraries say is put in words before a person reads it.
func TestErrorsAreInWords(t *testing.T) {
	t.Parallel()
	_, number := strconv.Atoi("seven")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("unknown command"), "unknown command"},
		{number, "it is not a number"},
		{errors.Join(errors.New("read a.tar"), context.DeadlineExceeded), "read a.tar\nthere was no answer before the timeout"},
		{errors.New(`invalid argument "x" for "--limit" flag: strconv.ParseInt: parsing "x": invalid syntax`), `invalid argument "x" for "--limit" flag: "x" is not valid here`},
	} {
		if got := cli.InWords(c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	for _, line := range []string{"item list --limit x", "item list --limit 99999999999999999999", "schedule --wait=soon", "delete request --from /nowhere --by x", "validate /nowhere", "version x", "read-buckets --interval 5"} {
		var stderr bytes.Buffer
		if code := run(context.Background(), strings.Fields(line), &stderr); code != cli.ExitUsage {
			t.Errorf("%s exits with %d", line, code)
		}
		for _, text := range []string{"strconv", "invalid syntax", "open /", "stat /", "no such file", "time:", "arg(s)"} {
			if strings.Contains(stderr.String(), text) {
				t.Errorf("%s: %s", line, stderr.String())
			}
		}
	}
}
