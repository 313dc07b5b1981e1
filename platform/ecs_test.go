package platform_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// container is what the tests read of a container of a task.
type container struct {
	Name        string
	Command     []string
	StopTimeout int
	User        string
	Environment []struct{ Name, Value string }
	Secrets     []struct{ Name, ValueFrom string }
	HealthCheck struct{ Command []string }

	ReadonlyRootFilesystem bool
}

// as reads a value of a template into a type of ours.
func as[T any](t *testing.T, value any) (v T) {
	t.Helper()
	must.Do(t, json.Unmarshal([]byte(encoded(t, value)), &v))
	return v
}

// tasks are the containers of the task definitions, by their service.
func tasks(t *testing.T, x *template) map[string][]container {
	t.Helper()
	found := map[string][]container{}
	for id, r := range x.Resources {
		if r.Type == "AWS::ECS::TaskDefinition" {
			found[strings.TrimSuffix(id, "Task")] = as[struct{ ContainerDefinitions []container }](t, r.Properties).ContainerDefinitions
		}
	}
	if len(found) != 8 {
		t.Fatalf("%d task definitions", len(found))
	}
	return found
}

// valueFor is something that the setting of a name may be.
func valueFor(name string) string {
	switch {
	case strings.HasSuffix(name, "DATABASE_URL"):
		return "postgres://u:p@h:5432/d"
	case strings.HasSuffix(name, "REDIS_URL"):
		return "redis://h:6379/3"
	case strings.HasSuffix(name, "INTERVAL"):
		return "7m"
	case strings.HasSuffix(name, "HTTP_ADDR"):
		return "h:4161"
	case strings.HasSuffix(name, "WEB_KEY"):
		return base64.StdEncoding.EncodeToString(make([]byte, 32))
	case strings.HasSuffix(name, "KEY_ID"), strings.HasSuffix(name, "SECRET_ACCESS_KEY"):
		return "key"
	case strings.Contains(name, "BUCKET_") || name == "STAGING_BUCKET":
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	return "7"
}

// load reads an environment as the process of a task does.
func load(process string, environ map[string]string) (any, error) {
	switch process {
	case "Migrate":
		return settings.Load(environ, settings.Session{})
	case "Mirror":
		return settings.Load(environ, settings.Mirror{})
	case "Schedule":
		return settings.Load(environ, settings.Scheduler{Redis: &settings.Redis{}, Janitor: &settings.Janitor{}, S3: &settings.S3{}, Storage: &settings.Storage{}})
	case "Web":
		server, err := settings.Load(environ, settings.Server{API: &settings.API{}})
		item, err2 := settings.Load(environ, settings.Item{})
		stores, err3 := settings.Load(environ, settings.ItemStores{})
		return []any{server, item, stores}, errors.Join(err, err2, err3)
	}
	return settings.Load(environ, settings.Worker{})
}

// Each parameter has an effect under the name that the task gives it, and the process starts.
func TestParametersOfTasksAreSettings(t *testing.T) {
	t.Parallel()
	x := resolved(t, file(t, "deploy", "ecs", "farol.yaml"), true, "WebURL", "https://farol.example.org")
	known := knownSettings()
	for process, containers := range tasks(t, x) {
		environ := map[string]string{}
		for _, e := range containers[0].Environment {
			environ[e.Name] = e.Value
			if !known[e.Name] {
				t.Errorf("%s: %s is no setting", process, e.Name)
			}
		}
		for _, s := range containers[0].Secrets {
			if environ[s.Name] != "" {
				t.Errorf("%s has %s twice", process, s.Name)
			}
			environ[s.Name] = valueFor(s.Name)
		}
		all, err := load(process, environ)
		if err != nil {
			t.Errorf("%s does not start: %v", process, err)
			continue
		}
		if again, _ := load(process, environ); !reflect.DeepEqual(all, again) {
			t.Fatalf("%s: settings are not the same when they are read again", process)
		}
		for _, s := range containers[0].Secrets {
			less := maps.Clone(environ)
			delete(less, s.Name)
			if without, err := load(process, less); err == nil && reflect.DeepEqual(all, without) {
				t.Errorf("%s: %s has no effect", process, s.Name)
			}
		}
	}
}

// The names of the predecessor's workers: each is taken by the one task that does its work.
func TestTasksTakeTheNamesOfAllOldWorkers(t *testing.T) {
	t.Parallel()
	var want []string
	for _, worker := range strings.Fields(`APT_DELETE APT_FIXITY BAG_RESTORER FILE_RESTORER GLACIER_RESTORER INGEST_CLEANUP
		INGEST_FORMAT_IDENTIFIER INGEST_PRE_FETCH INGEST_PRESERVATION_UPLOADER INGEST_PRESERVATION_VERIFIER INGEST_RECORDER
		INGEST_STAGING_UPLOADER INGEST_VALIDATOR REINGEST_MANAGER`) {
		want = append(want, worker+"_BUFFER_SIZE", worker+"_MAX_ATTEMPTS", worker+"_WORKERS")
	}
	var rows []string
	for line := range strings.Lines(file(t, "docs", "ecs.md")) {
		if strings.HasPrefix(line, "| ") {
			rows = append(rows, line)
		}
	}
	for _, attempts := range []bool{true, false} {
		x := resolved(t, file(t, "deploy", "ecs", "farol.yaml"), attempts)
		var got []string
		for process, containers := range tasks(t, x) {
			for _, s := range containers[0].Secrets {
				from := s.ValueFrom[strings.LastIndex(s.ValueFrom, "/")+1:]
				if regexp.MustCompile(`_(WORKERS|BUFFER_SIZE|MAX_ATTEMPTS)$`).MatchString(s.Name) {
					got = append(got, s.Name)
				} else if !slices.ContainsFunc(rows, func(row string) bool {
					return strings.Contains(row, "`"+from+"`") && strings.Contains(row, "`"+s.Name+"`")
				}) {
					t.Errorf("docs/ecs.md does not say that %s becomes %s", from, s.Name)
				}
				if !strings.HasPrefix(s.ValueFrom, "/PROD/PRESERV/") && !strings.HasPrefix(s.ValueFrom, "/PROD/FAROL/") {
					t.Errorf("%s: %s is of %s", process, s.Name, s.ValueFrom)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !attempts { // which the predecessor did not keep in Parameter Store
			want = slices.DeleteFunc(want, func(name string) bool { return strings.HasSuffix(name, "_MAX_ATTEMPTS") })
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names of workers (-want +got):\n%s", diff)
		}
	}
}

// Tasks end before they are killed, write nowhere but to TMPDIR, run as nobody in particular, and
// together take all stages.
func TestTasksEndInTimeAndTakeAllStages(t *testing.T) {
	t.Parallel()
	x := resolved(t, file(t, "deploy", "ecs", "farol.yaml"), true)
	var stages []string
	for process, containers := range tasks(t, x) {
		c := containers[0]
		grace := 20 * time.Second
		for _, e := range c.Environment {
			if e.Name == "FAROL_GRACE" {
				grace = must.Get(time.ParseDuration(e.Value))(t)
			}
		}
		if c.StopTimeout != 120 || grace > 110*time.Second {
			t.Errorf("%s is killed after %d s, with a grace of %v", process, c.StopTimeout, grace)
		}
		if c.User != "10001" || !c.ReadonlyRootFilesystem {
			t.Errorf("%s runs as %q, with a root that it can write to: %v", process, c.User, !c.ReadonlyRootFilesystem)
		}
		if process != "Migrate" && !slices.Contains(c.HealthCheck.Command, "http://127.0.0.1:9090/healthz") {
			t.Errorf("%s has no health check", process)
		}
		if c.Command[0] == "work" {
			stages = append(stages, strings.Split(c.Command[len(c.Command)-1], ",")...)
			runsOn := encoded(t, as[struct{ CapacityProviderStrategy any }](t, x.Resources[process+"Service"].Properties).CapacityProviderStrategy)
			if want := `[{"Base":1,"CapacityProvider":"FARGATE","Weight":0},{"CapacityProvider":"FARGATE_SPOT","Weight":1}]`; runsOn != want {
				t.Errorf("%s runs on %s, want %s", process, runsOn, want)
			}
		}
	}
	slices.Sort(stages)
	want := settings.StepNames()
	slices.Sort(want)
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

// Who stores copies cannot delete them: level 4 of NDSA.
func TestOnlyThoseThatDeleteMayDelete(t *testing.T) {
	t.Parallel()
	may := map[string][]string{}
	for kind, r := range resolved(t, file(t, "deploy", "aws", "rights.yaml"), true).Resources {
		policy := as[struct {
			PolicyDocument struct {
				Statement []struct{ Action, Resource []string }
			}
		}](t, r.Properties)
		for _, s := range policy.PolicyDocument.Statement {
			for _, action := range s.Action {
				if strings.HasPrefix(action, "s3:Delete") && strings.Contains(s.Resource[0], "preservation") || strings.Contains(action, "*") {
					may[action] = append(may[action], kind)
				}
			}
		}
	}
	for _, kinds := range may {
		slices.Sort(kinds)
	}
	if diff := cmp.Diff(map[string][]string{
		"s3:DeleteObject": {"Finish", "Requests", "Schedule"}, "s3:DeleteObjectVersion": {"Finish", "Requests", "Schedule"},
	}, may); diff != "" {
		t.Errorf("who may delete what is preserved (-want +got):\n%s", diff)
	}
}

// depthOf is the container that logs what services are scaled by, in place of CloudWatch's agent.
func depthOf(t *testing.T, x *template) container {
	t.Helper()
	for _, c := range tasks(t, x)["Schedule"] {
		if c.Name == "depth" {
			return c
		}
	}
	t.Fatal("the task of farol schedule has no container depth")
	return container{}
}

// What CloudWatch reads of the log is what is in flight; and nothing is said while the database
// does not answer, or all workers would be stopped.
func TestServicesAreScaledByWhatIsInFlight(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	server.Exec(items)
	address := freeAddress(t)
	start(t, []string{"FAROL_DATABASE_URL=" + server.URL, "FAROL_HTTP_ADDR=" + address, "FAROL_PULL_ADDR=127.0.0.1:0"}, "serve", "--pull")

	c := depthOf(t, resolved(t, file(t, "deploy", "ecs", "farol.yaml"), true))
	script := strings.NewReplacer("while sleep 60; do", "for once in 1; do", "wget -q -O -", "curl -sf", "127.0.0.1:9090", address).Replace(c.Command[0])
	says := func(want string) func() bool {
		return func() bool {
			out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
			return err == nil && strings.TrimSpace(string(out)) == want
		}
	}
	testenv.Eventually(t, "what is due", says(`{"farol":"in_flight","ingest":2,"store":2,"finish":1,"requests":1}`))
	server.Exec(`SELECT pause_stage('Store')`)
	testenv.Eventually(t, "what is due, without a paused stage", says(`{"farol":"in_flight","ingest":2,"store":0,"finish":1,"requests":1}`))
	server.Exec(`INSERT INTO known_services (service, scopes) VALUES ('redis', '[{"steps": ["Cleanup", "Store"]}]'); SELECT hold_service('redis')`)
	testenv.Eventually(t, "one that stays, for a held service", says(`{"farol":"in_flight","ingest":2,"store":0,"finish":1,"requests":1}`))
	server.Exec(`SELECT resume_stage('Store')`)
	testenv.Eventually(t, "one that stays in each", says(`{"farol":"in_flight","ingest":2,"store":1,"finish":1,"requests":1}`))
	server.End(syscall.SIGINT)
	testenv.Eventually(t, "nothing without a database", says(""))
	if out, err := exec.CommandContext(t.Context(), "curl", "-sf", "http://"+address+"/metrics").Output(); err != nil || !strings.Contains(string(out), "\nfarol_database_up 0\n") {
		t.Errorf("the process has no metrics, or not this one: %v", err)
	}
}
