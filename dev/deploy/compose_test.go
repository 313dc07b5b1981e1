package deploy_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// required are the settings that have no default, since they are secrets.
func required() map[string]string {
	return map[string]string{
		"FAROL_POSTGRES_PASSWORD": "secret1", "FAROL_POSTGRES_OWNER_PASSWORD": "secret5", "FAROL_REDIS_PASSWORD": "secret2",
		"FAROL_S3_ACCESS_KEY_ID": "secret3", "FAROL_S3_SECRET_ACCESS_KEY": "secret4",
	}
}

// load reads docker-compose.yml as docker compose does, with only these settings
// and profiles; it asks no engine and no network.
func load(ctx context.Context, settings map[string]string, profiles ...string) (*types.Project, error) {
	var env []string
	for name, value := range settings {
		env = append(env, name+"="+value)
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join("..", "..", "docker-compose.yml")},
		cli.WithEnv(env), cli.WithDefaultProfiles(append([]string{"tools"}, profiles...)...))
	if err != nil {
		return nil, err
	}
	return options.LoadProject(ctx)
}

func project(t *testing.T) *types.Project {
	t.Helper()
	return withProfiles(t, "all-in-one", "split")
}

func withProfiles(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	p := must.Get(load(t.Context(), required(), profiles...))(t)
	return p
}

// oneShot are the services that end when their work is done.
func oneShot(name string) bool { return name == "migrate" || name == "cli" }

func TestComposeFileHasEveryService(t *testing.T) {
	t.Parallel()
	want := []string{
		"cli", "migrate", "mirror", "nsqadmin", "nsqd", "nsqlookupd", "postgres", "redis", "s3", "schedule", "serve",
		"work", "work-check", "work-record", "work-requests", "work-stage", "work-store",
	}
	got := project(t).ServiceNames()
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
}

func TestComposeRefusesToStartWithoutASecret(t *testing.T) {
	t.Parallel()
	for missing := range required() {
		settings := required()
		delete(settings, missing)
		if _, err := load(t.Context(), settings); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v; want an error that names it", missing, err)
		}
	}
}

// The example and the file must not drift apart, and neither may hold a secret.
func TestExampleListsEverySetting(t *testing.T) {
	t.Parallel()
	file := must.Get(os.ReadFile(filepath.Join("..", "..", "docker-compose.yml")))(t)
	example := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", "env.example")))(t)
	used := map[string]bool{}
	used["COMPOSE_PROFILES"] = true // by docker compose itself
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)`).FindAllStringSubmatch(string(file), -1) {
		used[m[1]] = true
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(#?)([A-Z0-9_]+)=(.*)$`).FindAllStringSubmatch(string(example), -1) {
		listed[m[2]] = true
		if _, secret := required()[m[2]]; secret != (m[1] == "" && m[3] == "") {
			t.Errorf("env.example: %s: only what must be set stands empty", m[2])
		}
	}
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("settings used and listed (-used +listed):\n%s", diff)
	}
}

func TestEverySettingOfASecretIsTakenFromTheEnvironment(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`PASSWORD|SECRET|ACCESS_KEY|AUTH|_URL$`)
	for _, service := range project(t).Services {
		for key, value := range service.Environment {
			if value == nil || *value == "" || !name.MatchString(key) { // empty: it may be set, and is not
				continue
			}
			taken := func(secret string) bool { return strings.Contains(*value, secret) }
			if !slices.ContainsFunc(slices.Collect(maps.Values(required())), taken) {
				t.Errorf("%s: %s is written into the file", service.Name, key)
			}
		}
	}
}

func TestNothingIsOpenToOtherMachines(t *testing.T) {
	t.Parallel()
	for _, service := range project(t).Services {
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is bound to %q, want 127.0.0.1", service.Name, port.Target, port.HostIP)
			}
		}
	}
}

func TestServicesComeBackAndAreWatched(t *testing.T) {
	t.Parallel()
	for _, service := range project(t).Services {
		if want := types.RestartPolicyUnlessStopped; !oneShot(service.Name) && service.Restart != want {
			t.Errorf("%s: restart is %q, want %q", service.Name, service.Restart, want)
		}
		if !oneShot(service.Name) && service.HealthCheck == nil {
			t.Errorf("%s has no health check", service.Name)
		}
	}
}

// An image that is not pinned is another one tomorrow, and minio's are gone.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+`)
	for _, service := range project(t).Services {
		if service.Build == nil && !pinned.MatchString(service.Image) {
			t.Errorf("%s: image %q names no version", service.Name, service.Image)
		}
		if strings.Contains(service.Image, "minio") {
			t.Errorf("%s: image %q no longer exists", service.Name, service.Image)
		}
	}
}

// Either profile has each stage worked on once, and nothing of the other; all
// else is the same. Without a profile no worker runs.
func TestProfilesShareTheStages(t *testing.T) {
	t.Parallel()
	all := []string{
		"Cleanup", "Copy To Staging", "Delete", "Export", "Format Identification", "Glacier Restore", "Receive", "Record", "Reingest Check", "Restore File",
		"Restore Object", "Storage Validation", "Store", "Validate",
	}
	for _, tc := range []struct {
		profiles []string
		workers  []string
		stages   []string
	}{
		{[]string{"split"}, []string{"work-check", "work-record", "work-requests", "work-stage", "work-store"}, all},
		{[]string{"all-in-one"}, []string{"work"}, all},
		{nil, nil, nil},
	} {
		p := withProfiles(t, tc.profiles...)
		var workers, stages []string
		for _, service := range p.Services {
			switch {
			case len(service.Command) == 0 || service.Command[0] != "work":
			case len(service.Command) == 2 && service.Command[1] == "--wait":
				workers, stages = append(workers, service.Name), append(stages, all...)
			case len(service.Command) == 4 && service.Command[1] == "--wait" && service.Command[2] == "--stages":
				workers, stages = append(workers, service.Name), append(stages, strings.Split(service.Command[3], ",")...)
			default:
				t.Errorf("%s: command is %q", service.Name, service.Command)
			}
		}
		slices.Sort(workers)
		slices.Sort(stages)
		if diff := cmp.Diff(tc.workers, workers); diff != "" {
			t.Errorf("workers of %q (-want +got):\n%s", tc.profiles, diff)
		}
		if diff := cmp.Diff(tc.stages, stages); diff != "" {
			t.Errorf("stages of %q (-want +got):\n%s", tc.profiles, diff)
		}
		if others := len(p.Services) - len(workers); others != 11 {
			t.Errorf("with %q %d services are no workers, want 11", tc.profiles, others)
		}
	}
}

// After a restart of the host servers may come up after the processes that need them,
// whatever depends_on says of the first start.
func TestProcessesWaitForTheirServers(t *testing.T) {
	t.Parallel()
	for _, service := range project(t).Services {
		if len(service.Command) == 0 || !slices.Contains([]string{"work", "schedule", "mirror", "serve"}, service.Command[0]) {
			continue
		}
		if !slices.Contains(service.Command, "--wait") {
			t.Errorf("%s does not wait: its command is %q", service.Name, service.Command)
		}
	}
}

func TestWorkersStayWithinTheirLimits(t *testing.T) {
	t.Parallel()
	for _, service := range project(t).Services {
		if len(service.Command) == 0 || service.Command[0] != "work" {
			continue
		}
		if limit := service.Deploy.Resources.Limits.MemoryBytes; limit != 512<<20 {
			t.Errorf("%s: memory limit is %d, want 512 MiB", service.Name, limit)
		}
		grace, err := time.ParseDuration(*service.Environment["FAROL_GRACE"])
		if err != nil || service.StopGracePeriod == nil || time.Duration(*service.StopGracePeriod) < grace+20*time.Second {
			t.Errorf("%s: stop_grace_period is %v, want more than FAROL_GRACE, %v: a kill leaves items to their lease",
				service.Name, service.StopGracePeriod, grace)
		}
		for _, needed := range []string{"migrate", "redis", "s3"} {
			if _, ok := service.DependsOn[needed]; !ok {
				t.Errorf("%s starts before %s", service.Name, needed)
			}
		}
	}
}

// Without it no bag is found, nothing is cleaned up, and no copy is checked: it runs
// whichever workers do, with all jobs, and all that these need.
func TestSchedulerRunsAllJobs(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"split", "all-in-one"} {
		s := must.Get(withProfiles(t, profile).GetService("schedule"))(t)
		if diff := cmp.Diff(types.ShellCommand{"schedule", "--wait"}, s.Command); diff != "" {
			t.Errorf("command (-want +got):\n%s", diff)
		}
		for _, needed := range []string{"migrate", "redis", "s3"} {
			if _, ok := s.DependsOn[needed]; !ok {
				t.Errorf("it starts before %s", needed)
			}
		}
	}
}

func TestRedisKeepsAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	redis := must.Get(project(t).GetService("redis"))(t)
	command := strings.Join(redis.Command, " ")
	if !strings.Contains(command, "--appendonly yes") || strings.Contains(command, required()["FAROL_REDIS_PASSWORD"]) {
		t.Errorf("command is %q; want an append-only file and no password", command)
	}
}

// Every target has its default bucket on the gateway, which keeps no storage
// classes.
func TestGatewayHasTheBucketOfEveryTarget(t *testing.T) {
	t.Parallel()
	p := project(t)
	s3 := must.Get(p.GetService("s3"))(t)
	worker := must.Get(p.GetService("work-store"))(t)
	buckets := strings.Fields(strings.Join(s3.Entrypoint, " "))
	for _, target := range storage.Targets() {
		if !slices.Contains(buckets, target.Bucket) {
			t.Errorf("the gateway makes no bucket %s", target.Bucket)
		}
		setting := "FAROL_TARGET_" + strings.ToUpper(strings.ReplaceAll(target.Name, "-", "_")) + "_STORAGE_CLASS"
		if class := worker.Environment[setting]; target.StorageClass != "" && (class == nil || *class != "STANDARD") {
			t.Errorf("%s is not STANDARD", setting)
		}
	}
	if !slices.Contains(buckets, "staging") {
		t.Error("the gateway makes no staging bucket")
	}
}

// The image has the production program alone, which runs as a user without rights,
// on bases of certain versions.
func TestImageIsBuiltWithTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	read := func(name, pattern string) string {
		t.Helper()
		text := must.Get(os.ReadFile(filepath.Join("..", "..", name)))(t)
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s has nothing like %s", name, pattern)
		}
		return string(m[1])
	}
	if want, got := read("go.mod", `(?m)^go (\d+\.\d+)`), read("Dockerfile", `(?m)^ARG GO_IMAGE=golang:(\d+\.\d+)`); got != want {
		t.Errorf("Dockerfile builds with Go %s, go.mod says %s", got, want)
	}
	if built := read("Dockerfile", `(?m)go build .* (-o .*)$`); built != "-o /farol ./cmd/farol" {
		t.Errorf("Dockerfile builds %s", built)
	}
	for _, pattern := range []string{
		`(?m)^(USER [1-9]\d*)$`, `(?m)^(ARG GO_IMAGE=golang:\d+\.\d+\.\d+-alpine)$`, `(?m)^(ARG BASE_IMAGE=alpine:\d+\.\d+\.\d+)$`,
	} {
		read("Dockerfile", pattern)
	}
}
