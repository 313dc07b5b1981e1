package platform_test

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// pods are the pods that a profile has, by the name of what starts them.
func pods(objects []any) map[string]corev1.PodSpec {
	found := map[string]corev1.PodSpec{}
	for _, d := range of[appsv1.Deployment](objects) {
		found[d.Name] = d.Spec.Template.Spec
	}
	for _, j := range of[batchv1.Job](objects) {
		found[j.Name] = j.Spec.Template.Spec
	}
	return found
}

// environ is what a container is given.
func environ(c corev1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

func TestEachProfileHasItsProcesses(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"all-in-one": {"farol-migrate", "farol-schedule", "farol-work-all"},
		"pools": {
			"farol-migrate", "farol-schedule", "farol-work-check", "farol-work-large", "farol-work-record", "farol-work-requests",
			"farol-work-store",
		},
		"everything": {"farol-migrate", "farol-mirror", "farol-pull", "farol-schedule", "farol-web", "farol-work-one"},
	}
	got := map[string][]string{}
	for name, text := range rendered(t) {
		got[name] = slices.Sorted(maps.Keys(pods(decode(t, text))))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

// What the restricted standard for pods asks for, and what Farol does without.
func TestPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	for profile, text := range rendered(t) {
		for name, pod := range pods(decode(t, text)) {
			s, c := pod.SecurityContext, pod.Containers[0]
			if s == nil || !*s.RunAsNonRoot || *s.RunAsUser != 10001 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s: the security context of the pod is %v", profile, name, s)
			}
			o := c.SecurityContext
			if o == nil || *o.AllowPrivilegeEscalation || !*o.ReadOnlyRootFilesystem || !slices.Equal(o.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: %s: the security context of the container is %v", profile, name, o)
			}
			if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
				t.Errorf("%s: %s has a token, or the names of services in its environment", profile, name)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: %s has resources %v", profile, name, c.Resources)
			}
			if pod.Volumes[0].EmptyDir.SizeLimit.IsZero() || c.VolumeMounts[0].MountPath != environ(c)["TMPDIR"] {
				t.Errorf("%s: %s: TMPDIR is no volume with a limit", profile, name)
			}
		}
	}
}

// A name with a letter wrong would be found when the first process starts, and a secret in the
// environment by all that reads the pod.
func TestSettingsExistAndSecretsAreFiles(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`PASSWORD|SECRET|ACCESS_KEY|WEB_KEY|TOKEN|(DATABASE|REDIS)(_DIRECT)?_URL`)
	for profile, text := range rendered(t) {
		for name, pod := range pods(decode(t, text)) {
			files := map[string]bool{}
			for _, source := range pod.Volumes[1].Projected.Sources {
				for _, item := range source.Secret.Items {
					files[pod.Containers[0].VolumeMounts[1].MountPath+"/"+item.Path] = true
				}
			}
			env := environ(pod.Containers[0])
			for _, wrong := range refused(t, env) {
				t.Errorf("%s: %s: %s", profile, name, wrong)
			}
			for setting, value := range env {
				if file := strings.HasSuffix(setting, "_FILE"); file != secret.MatchString(setting) || file != files[value] {
					t.Errorf("%s: %s: %s is %q; secrets, and only they, are files of the volume", profile, name, setting, value)
				}
			}
			if len(files) == 0 {
				t.Errorf("%s: %s has no secrets", profile, name)
			}
		}
	}
}

// The process ends before it is killed, is asked how it is, and is not evicted with all others.
func TestProcessesAreWatchedAndEndInTime(t *testing.T) {
	t.Parallel()
	for profile, text := range rendered(t) {
		objects := decode(t, text)
		guarded := map[string]bool{}
		for _, b := range of[policyv1.PodDisruptionBudget](objects) {
			guarded[b.Spec.Selector.MatchLabels["app.kubernetes.io/component"]] = b.Spec.MaxUnavailable.IntValue() == 1
		}
		accounts := map[string]bool{}
		for _, a := range of[corev1.ServiceAccount](objects) {
			accounts[a.Name] = true
		}
		for _, d := range of[appsv1.Deployment](objects) {
			pod := d.Spec.Template.Spec
			c := pod.Containers[0]
			grace, err := time.ParseDuration(environ(c)["FAROL_GRACE"])
			if err != nil {
				grace = 20 * time.Second // its default
			}
			if most := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; most < grace+10*time.Second {
				t.Errorf("%s: %s is killed after %v, with a grace of %v", profile, d.Name, most, grace)
			}
			if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || !slices.Contains(c.Args, "--wait") {
				t.Errorf("%s: %s: probes or arguments are not as they should be: %q", profile, d.Name, c.Args)
			}
			labels := d.Spec.Template.Labels
			for key, value := range d.Spec.Selector.MatchLabels {
				if labels[key] != value || len(pod.TopologySpreadConstraints) != 2 || pod.TopologySpreadConstraints[1].LabelSelector.MatchLabels[key] != value {
					t.Errorf("%s: %s: %s is not on its pods, or they are not spread by it", profile, d.Name, key)
				}
			}
			if component := labels["app.kubernetes.io/component"]; !guarded[component] || !accounts[pod.ServiceAccountName] || d.Name != "farol-"+component {
				t.Errorf("%s: %s has no disruption budget, or no account %q", profile, d.Name, pod.ServiceAccountName)
			}
		}
	}
}

// Each profile takes every stage and every size. What KEDA scales it can also stop, and a
// Deployment of it has no number of its own.
func TestPoolsTakeAllStages(t *testing.T) {
	t.Parallel()
	for profile, text := range rendered(t) {
		if profile == "everything" {
			continue
		}
		objects := decode(t, text)
		scaled := map[string]bool{}
		for _, o := range of[scaledObject](objects) {
			scaled[o.Spec.ScaleTargetRef.Name] = true
		}
		small, large := map[string]bool{}, map[string]bool{}
		for _, d := range of[appsv1.Deployment](objects) {
			if (d.Spec.Replicas == nil) != scaled[d.Name] {
				t.Errorf("%s: %s has %v replicas", profile, d.Name, d.Spec.Replicas)
			}
			args := d.Spec.Template.Spec.Containers[0].Args
			if args[0] != "work" {
				continue
			}
			stages := settings.StepNames()
			if at := slices.Index(args, "--stages"); at > 0 {
				stages = strings.Split(args[at+1], ",")
			}
			for _, stage := range stages {
				small[stage] = small[stage] || !slices.Contains(args, "--min-size")
				large[stage] = large[stage] || !slices.Contains(args, "--max-size")
			}
		}
		for _, stage := range settings.StepNames() {
			if !small[stage] || !large[stage] {
				t.Errorf("%s: no pool takes %s of every size", profile, stage)
			}
		}
	}
}

// What the policy lets in are ports that pods have, and what Prometheus is told to read is a
// Service that leads to all of them.
func TestPortsLeadToProcesses(t *testing.T) {
	t.Parallel()
	for profile, text := range rendered(t) {
		objects := decode(t, text)
		ports := map[string]bool{}
		for _, pod := range pods(objects) {
			for _, p := range pod.Containers[0].Ports {
				ports[p.Name] = true
			}
		}
		open := map[string]bool{}
		for _, policy := range of[networkingv1.NetworkPolicy](objects) {
			for _, rule := range policy.Spec.Ingress {
				for _, p := range rule.Ports {
					open[p.Port.StrVal] = true
				}
			}
		}
		if diff := cmp.Diff(ports, open); diff != "" {
			t.Errorf("%s: ports of pods, and those that the policy opens (-pods +policy):\n%s", profile, diff)
		}
		leads := map[string]corev1.ServiceSpec{}
		for _, s := range of[corev1.Service](objects) {
			leads[s.Name] = s.Spec
			if !ports[s.Spec.Ports[0].TargetPort.StrVal] {
				t.Errorf("%s: the Service %s leads to a port that no pod has", profile, s.Name)
			}
		}
		for _, m := range of[serviceMonitor](objects) {
			s := leads["farol-"+m.Spec.Selector.MatchLabels["app.kubernetes.io/component"]]
			if len(s.Ports) != 1 || s.Ports[0].Name != m.Spec.Endpoints[0].Port || s.Selector["app.kubernetes.io/component"] != "" {
				t.Errorf("%s: the ServiceMonitor selects %+v, not a Service of all processes", profile, s)
			}
		}
	}
}

// A process starts with what its pod gives it, waits for a store that does not answer yet, and
// is alive but not ready; the job of the migrations ends.
func TestPodsStart(t *testing.T) {
	t.Parallel()
	const keys = "secrets: {AWS_ACCESS_KEY_ID: {name: s3, key: id}, AWS_SECRET_ACCESS_KEY: {name: s3, key: secret}}"
	text := must.Get(render("image: {tag: local}\nsettings: {FAROL_S3_ENDPOINT: 'http://127.0.0.1:1'}\nwork: {" + keys + "}\nschedule: {" + keys + "}"))(t)
	url, redis := testenv.DatabaseURL(t), testenv.RedisURL(t)
	for name, pod := range pods(decode(t, text)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, secrets, address := pod.Containers[0], t.TempDir(), freeAddress(t)
			for _, source := range pod.Volumes[1].Projected.Sources {
				for _, item := range source.Secret.Items {
					value := map[string]string{"database-url": url, "redis-url": redis, "id": "id", "secret": "secret"}[item.Key]
					must.Do(t, os.WriteFile(filepath.Join(secrets, item.Path), []byte(value), 0o600))
				}
			}
			var env []string
			for name, value := range environ(c) {
				value = strings.ReplaceAll(value, c.VolumeMounts[1].MountPath, secrets)
				env = append(env, name+"="+strings.ReplaceAll(value, "0.0.0.0:9090", address))
			}
			farol := start(t, env, c.Args...)
			if c.LivenessProbe == nil {
				must.Do(t, farol.Wait())
				return
			}
			answers := func(path string, status int) func() bool {
				return func() bool {
					r, err := http.Get("http://" + address + path)
					return err == nil && r.Body.Close() == nil && r.StatusCode == status
				}
			}
			testenv.Eventually(t, "a sign of life", answers(c.LivenessProbe.HTTPGet.Path, http.StatusOK))
			testenv.Eventually(t, "not ready", answers(c.ReadinessProbe.HTTPGet.Path, http.StatusServiceUnavailable))
		})
	}
}

// A worker that is to be spared while it has items in hand knows its pod, and may patch pods and nothing else.
func TestWorkersMaySayWhatTheirDeletionCosts(t *testing.T) {
	t.Parallel()
	objects := decode(t, must.Get(render("image: {tag: local}", "work: {podDeletionCost: true}"))(t))
	for name, pod := range pods(objects) {
		works := name == "farol-work-all"
		i := slices.IndexFunc(pod.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "FAROL_POD_NAME" })
		if *pod.AutomountServiceAccountToken != works || i >= 0 != works {
			t.Errorf("%s: a token is mounted: %v, and its pod is named: %v", name, *pod.AutomountServiceAccountToken, i >= 0)
		}
		if works && pod.Containers[0].Env[i].ValueFrom.FieldRef.FieldPath != "metadata.name" {
			t.Errorf("FAROL_POD_NAME is %v", pod.Containers[0].Env[i])
		}
	}
	roles, bindings := of[rbacv1.Role](objects), of[rbacv1.RoleBinding](objects)
	if len(roles) != 1 || len(bindings) != 1 {
		t.Fatalf("%d roles and %d bindings", len(roles), len(bindings))
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}}
	if diff := cmp.Diff(want, roles[0].Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if b := bindings[0]; b.RoleRef.Name != roles[0].Name || b.Subjects[0].Name != "farol-work-all" || b.Subjects[0].Namespace == "" {
		t.Errorf("the binding is %+v", b)
	}
}
