package platform_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

var update = flag.Bool("update", false, "write deploy/kubernetes")

// render is what helm template prints for these values, in one order.
func render(values ...string) (string, error) {
	chart, err := loader.Load(filepath.Join("..", "deploy", "helm", "farol"))
	if err != nil {
		return "", err
	}
	given := map[string]any{}
	for _, text := range values {
		v, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			return "", err
		}
		given = chartutil.CoalesceTables(v, given)
	}
	release := chartutil.ReleaseOptions{Name: "farol", Namespace: "farol", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for _, document := range documents(files[name]) {
			fmt.Fprintf(&b, "---\n%s\n", document)
		}
	}
	return b.String(), nil
}

// documents are those of a stream of YAML that say something, without empty lines.
func documents(text string) (list []string) {
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var lines []string
		for line := range strings.SplitSeq(document, "\n") {
			if strings.TrimSpace(line) != "" {
				lines = append(lines, strings.TrimRight(line, " "))
			}
		}
		if len(lines) > 0 {
			list = append(list, strings.Join(lines, "\n"))
		}
	}
	return list
}

// KEDA's and Prometheus' kinds, with those of their fields that the chart uses.
type (
	meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name        string            `json:"name"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	scaledObject struct {
		meta
		Spec struct {
			ScaleTargetRef struct {
				Name string `json:"name"`
			} `json:"scaleTargetRef"`
			PollingInterval int32 `json:"pollingInterval"`
			CooldownPeriod  int32 `json:"cooldownPeriod"`
			MinReplicaCount int32 `json:"minReplicaCount"`
			MaxReplicaCount int32 `json:"maxReplicaCount"`
			Triggers        []struct {
				Type              string            `json:"type"`
				Metadata          map[string]string `json:"metadata"`
				AuthenticationRef struct {
					Name string `json:"name"`
				} `json:"authenticationRef"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	triggerAuthentication struct {
		meta
		Spec struct {
			SecretTargetRef []struct {
				Parameter string `json:"parameter"`
				Name      string `json:"name"`
				Key       string `json:"key"`
			} `json:"secretTargetRef"`
		} `json:"spec"`
	}
	serviceMonitor struct {
		meta
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Endpoints []struct {
				Port     string `json:"port"`
				Interval string `json:"interval"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
)

// kinds makes an empty object of each kind that the chart has.
func kinds() map[string]func() any {
	return map[string]func() any{
		"v1 ServiceAccount":                        func() any { return new(corev1.ServiceAccount) },
		"v1 Service":                               func() any { return new(corev1.Service) },
		"apps/v1 Deployment":                       func() any { return new(appsv1.Deployment) },
		"batch/v1 Job":                             func() any { return new(batchv1.Job) },
		"rbac.authorization.k8s.io/v1 Role":        func() any { return new(rbacv1.Role) },
		"rbac.authorization.k8s.io/v1 RoleBinding": func() any { return new(rbacv1.RoleBinding) },
		"policy/v1 PodDisruptionBudget":            func() any { return new(policyv1.PodDisruptionBudget) },
		"networking.k8s.io/v1 NetworkPolicy":       func() any { return new(networkingv1.NetworkPolicy) },
		"keda.sh/v1alpha1 ScaledObject":            func() any { return new(scaledObject) },
		"keda.sh/v1alpha1 TriggerAuthentication":   func() any { return new(triggerAuthentication) },
		"monitoring.coreos.com/v1 ServiceMonitor":  func() any { return new(serviceMonitor) },
	}
}

// decode reads each object strictly: a field that its kind does not have, or that is there twice, is an error.
func decode(t *testing.T, text string) (objects []any) {
	t.Helper()
	for _, document := range documents(text) {
		var of meta
		if err := yaml.Unmarshal([]byte(document), &of); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		empty, known := kinds()[of.APIVersion+" "+of.Kind]
		if !known {
			t.Fatalf("the kind %s %s is not known", of.APIVersion, of.Kind)
		}
		object := empty()
		text := must.Get(yaml.YAMLToJSONStrict([]byte(document)))(t)
		wrong, err := json.UnmarshalStrict(text, object) // as the API server does it, to the letter
		if err := errors.Join(append(wrong, err)...); err != nil {
			t.Errorf("%s %s: %v", of.Kind, of.Metadata.Name, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// of are the objects of one kind.
func of[T any](objects []any) (list []*T) {
	for _, o := range objects {
		if o, ok := o.(*T); ok {
			list = append(list, o)
		}
	}
	return list
}

// profiles are the values of the two that are shipped as plain YAML, and of one with all that
// the chart can have.
func profiles(t *testing.T) map[string][]string {
	t.Helper()
	const tag = "image: {tag: local}"
	return map[string][]string{
		"all-in-one": {tag},
		"pools":      {file(t, "deploy", "helm", "farol", "values-pools.yaml"), tag},
		"everything": {tag, `
autoscaling: {enabled: true, scaler: prometheus, prometheus: "http://prometheus:9090"}
serviceMonitor: {enabled: true}
mirror: {enabled: true, settings: {FAROL_NSQD_TCP_ADDR: "nsqd:4150"}}
web: {enabled: true, settings: {FAROL_WEB_URL: "https://farol.example.org"}}
pull: {enabled: true}
work:
  serviceAccount: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/farol"}
  pools: {all: null, one: {stages: [Store], slots: 4, tmpSize: 1Gi}}
`},
	}
}

// rendered are the profiles as the chart renders them.
func rendered(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for name, values := range profiles(t) {
		texts[name] = must.Get(render(values...))(t)
	}
	return texts
}

// Those without Helm have the same objects.
func TestPlainYAMLIsWhatTheChartRenders(t *testing.T) {
	t.Parallel()
	for name, text := range rendered(t) {
		if name == "everything" {
			continue
		}
		path := filepath.Join("..", "deploy", "kubernetes", name+".yaml")
		want := "# Made from deploy/helm/farol: go -C platform test -run PlainYAML -update . docs/kubernetes.md says how to use it.\n" + text
		if *update {
			must.Do(t, os.WriteFile(path, []byte(want), 0o600))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is stale, %v; run go -C platform test -run PlainYAML -update .", path, err)
		}
	}
}

// A value that is wrong is named before anything is installed.
func TestWrongValuesAreNamed(t *testing.T) {
	t.Parallel()
	const tag = "image: {tag: local}\n"
	for _, tc := range []struct{ values, name string }{
		{"", "image.tag"},
		{"image: {digest: latest}", "digest"},
		{tag + "workers: {}", "workers"},
		{tag + "work: {graceSeconds: 90s}", "graceSeconds"},
		{tag + "work: {tmpSize: 4}", "tmpSize"},
		{tag + "work: {podDeletionCost: 5}", "podDeletionCost"},
		{tag + "work: {pools: {A: {}}}", "'A'"},
		{tag + "work: {pools: {a: {slot: 1}}}", "slot"},
		{tag + "settings: {farol_grace: 1s}", "farol_grace"},
		{tag + "web: {secrets: {FAROL_TOKEN: {name: farol}}}", "FAROL_TOKEN"},
		{tag + "work: {pools: {a: {stages: [Stor]}}}", "stages"},
		{tag + "autoscaling: {enabled: true, scaler: cpu}", "scaler"},
		{tag + "autoscaling: {enabled: true, scaler: prometheus}", "autoscaling.prometheus"},
		{tag + "autoscaling: {enabled: true, scaler: prometheus}\nwork: {pools: {a: {minGiB: 1}}}", "work.pools.a"},
	} {
		if _, err := render(tc.values); err == nil || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("%q: %v; want an error that names %s", tc.values, err, tc.name)
		}
	}
}
