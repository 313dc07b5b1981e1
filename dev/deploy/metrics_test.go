package deploy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/reference"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// A group of metrics has the processes that export them.
type group struct {
	about  string
	source func(chan<- *prometheus.Desc)
}

// groups are all metrics, by who exports them.
func groups(t *testing.T) []group {
	t.Helper()
	figures := must.Get(monitor.NewQueue(t.Context(), "test", settings.Database{URL: "postgres://nobody@127.0.0.1:1/none"}, nil))(t)
	t.Cleanup(figures.Close)
	work, jobs := monitor.NewWork(), monitor.NewRuns([]string{"janitor", "send-mail"})
	work.Registry.MustRegister(monitor.NewLeases(nil), monitor.NewServices(nil), monitor.NewStores(nil, nil))
	jobs.Registry.MustRegister(monitor.NewJobs(nil), monitor.NewOutbox(nil))
	monitor.NewArrivals(jobs.Registry)
	requests := prometheus.NewRegistry()
	monitor.NewRequests(requests)
	return []group{
		{"Of the database: every process exports the same values. Take the max over processes, then the sum over stages", figures.Describe},
		{"Of the own work of `farol work` since its start: take the sum over processes", work.Registry.Describe},
		{"Of `farol schedule`. Those of a job's state and of waiting mail are of the database", jobs.Registry.Describe},
		{"Of `farol mirror`. A standby exports `leads`, `failures` and `published` only", monitor.NewMirror(nil).Describe},
		{"Of `farol serve`", func(ch chan<- *prometheus.Desc) {
			for _, c := range []prometheus.Collector{requests, monitor.NewWaiting(nil), monitor.NewPull(nil, nil)} {
				c.Describe(ch)
			}
		}},
	}
}

// metric is what a description says of one.
type metric struct {
	name, help string
	labels     []string
}

// metrics are those of a group, once each.
func (g group) metrics(t *testing.T) (list []metric) {
	t.Helper()
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		g.source(ch)
	}()
	parts := regexp.MustCompile(`fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: .*variableLabels: \{([^}]*)\}`)
	for desc := range ch {
		found := parts.FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatalf("what is %v?", desc)
		}
		help, err := strconv.Unquote(found[2])
		if err != nil {
			t.Fatalf("%v: %v", desc, err)
		}
		m := metric{found[1], help, strings.FieldsFunc(found[3], func(r rune) bool { return r == ',' })}
		if !slices.ContainsFunc(list, func(o metric) bool { return o.name == m.name }) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}

// exported are all metrics with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, g := range groups(t) {
		for _, m := range g.metrics(t) {
			all[m.name] = m.labels
		}
	}
	return all
}

func page(t *testing.T, path ...string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...)))(t)
	return string(text)
}

// docs/reference/metrics.md is what the program says of its metrics. After a change:
// go -C dev test ./deploy -run Metrics -update.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Metrics\n\nThis page is generated: `go -C dev test ./deploy -run Metrics -update` writes it. [For operators](../operators.md#watch) says\n" +
		"how to serve and read them.\n\n| metric | labels | meaning |\n|---|---|---|\n")
	for _, g := range groups(t) {
		fmt.Fprintf(&b, "| **%s** | | |\n", g.about)
		for _, m := range g.metrics(t) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), m.help)
		}
	}
	reference.Fresh(t, filepath.Join("..", "..", "docs", "reference", "metrics.md"), b.String())
}

// labelValues are those that a metric may have, where they are few.
func labelValues(t *testing.T) map[string][]string {
	t.Helper()
	metrics := monitor.NewWork()
	o := claim.DefaultOptions()
	o.Observer, o.Log = metrics, slog.New(slog.DiscardHandler)
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	engine := must.Get(claim.New(t.Context(), db, o))(t)
	t.Cleanup(engine.Close)
	figures := must.Get(monitor.NewQueue(t.Context(), "test", settings.Database{URL: storage.Secret(url)}, o.Log))(t)
	t.Cleanup(figures.Close)
	metrics.Registry.MustRegister(figures, monitor.NewLeases(engine))
	values := map[string][]string{
		"outcome": {"done", "transient", "fatal", "released", "stopped", "held", "snoozed", "sent back", "lease expired", "killed", "oom", "panic", "cancelled"},
		"stage":   settings.StageNames(),
	}
	families := must.Get(metrics.Registry.Gather())(t)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	return values
}

var (
	metricOf  = regexp.MustCompile(`farol_[a-z_]+`)
	groupedBy = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
	matchers  = regexp.MustCompile(`(farol_[a-z_]+)\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`^([a-z_]+)(?:=~|!=|!~|=)"([^"]*)"$`)
	overTime  = regexp.MustCompile(`(\b[a-z_]+)\((farol_[a-z_]+)(?:\{[^}]*\})?\[`)
)

// expressions checks what is in a query of Prometheus against what there is.
type expressions struct {
	labels map[string][]string // by metric
	values map[string][]string // by label
}

// base is the metric that a sample belongs to: a histogram has several.
func (e expressions) base(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && e.labels[base] != nil {
			return base
		}
	}
	return name
}

// check says what is wrong with a query.
func (e expressions) check(expr string) (wrong []string) {
	names := metricOf.FindAllString(expr, -1)
	if len(names) == 0 || strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		wrong = append(wrong, "is no query")
	}
	known := []string{"le", "instance"}
	for _, name := range names {
		labels, ok := e.labels[e.base(name)]
		if !ok {
			wrong = append(wrong, name+" is no metric")
		}
		known = append(known, labels...)
	}
	for _, list := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(list[1], ", ") {
			if !slices.Contains(known, label) {
				wrong = append(wrong, "no metric in it has "+label)
			}
		}
	}
	for _, m := range matchers.FindAllStringSubmatch(expr, -1) {
		for part := range strings.SplitSeq(m[2], ", ") {
			wrong = append(wrong, e.checkMatcher(m[1], part)...)
		}
	}
	for _, m := range overTime.FindAllStringSubmatch(expr, -1) {
		grows := strings.HasSuffix(m[2], "_total") || e.base(m[2]) != m[2]
		if grows != slices.Contains([]string{"rate", "increase"}, m[1]) {
			wrong = append(wrong, m[1]+" of "+m[2])
		}
	}
	return wrong
}

func (e expressions) checkMatcher(metric, part string) (wrong []string) {
	found := matcher.FindStringSubmatch(part)
	if found == nil || !slices.Contains(e.labels[e.base(metric)], found[1]) {
		return []string{metric + " has no label for " + part}
	}
	for value := range strings.SplitSeq(found[2], "|") {
		if !slices.Contains(e.values[found[1]], value) {
			wrong = append(wrong, found[1]+" is never "+value)
		}
	}
	return wrong
}

// An alarm on a metric that is not there never rings.
func TestAlarmsAndDashboardAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	e := expressions{exported(t), labelValues(t)}
	check := func(where, expr string) {
		t.Helper()
		for _, wrong := range e.check(expr) {
			t.Errorf("%s: %s: %s", where, wrong, expr)
		}
	}
	var rules struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string                    `yaml:"alert"`
				Expr        string                    `yaml:"expr"`
				For         string                    `yaml:"for"`
				Labels      struct{ Severity string } `yaml:"labels"`
				Annotations struct {
					Summary, Description string
					Runbook              string `yaml:"runbook_url"`
				}
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(page(t, "deploy", "prometheus", "farol-rules.yml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&rules); err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 10 {
		t.Fatalf("%d groups of rules, %v", len(rules.Groups), err)
	}
	manual := page(t, "docs", "runbook.md")
	for _, r := range rules.Groups[0].Rules {
		check(r.Alert, r.Expr)
		if r.Annotations.Summary == "" || r.Annotations.Description == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels.Severity) {
			t.Errorf("%s says too little: %+v", r.Alert, r)
		}
		if !strings.Contains(manual, "\n### "+r.Alert+"\n") {
			t.Errorf("docs/runbook.md does not say what to do about %s", r.Alert)
		}
		if want := "/docs/runbook.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations.Runbook, want) {
			t.Errorf("the runbook_url of %s is %q, should end in %s", r.Alert, r.Annotations.Runbook, want)
		}
	}

	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(page(t, "deploy", "grafana", "farol.json")), &board); err != nil || len(board.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	ids := map[int]bool{}
	var depth string
	for _, p := range board.Panels {
		if p.Title == "" || len(p.Targets) == 0 || ids[p.ID] {
			t.Errorf("panel %d %q asks for nothing, or its number is another's", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
			if strings.HasPrefix(p.Title, "Queue depth by stage") {
				depth += target.Expr
			}
		}
	}
	if !strings.Contains(depth, "by (stage)") || !strings.Contains(depth, "farol_failed_items") {
		t.Errorf("the depth of the queue by stage with the failed set: %q", depth)
	}
}

// What watches the watching finds what is wrong.
func TestWrongQueriesAreFound(t *testing.T) {
	t.Parallel()
	labels := map[string][]string{"farol_a_total": {"stage"}, "farol_b": {}, "farol_c_seconds": {"kind"}}
	values := map[string][]string{"stage": {"Store"}, "kind": {"slot"}}
	for expr, good := range map[string]bool{
		`sum by (stage) (increase(farol_a_total{stage="Store"}[5m])) > 0`: true,
		`histogram_quantile(0.9, rate(farol_c_seconds_bucket[5m]))`:       true,
		`farol_d`:                          false,
		`farol_b_bucket_bucket`:            false,
		`sum by (kind) (farol_b)`:          false,
		`farol_a_total{stage="Stroe"}`:     false,
		`farol_a_total{kind="slot"}`:       false,
		`rate(farol_b[5m])`:                false,
		`max_over_time(farol_a_total[5m])`: false,
		`sum(farol_b`:                      false,
		`1 > 0`:                            false,
	} {
		if wrong := (expressions{labels, values}).check(expr); (len(wrong) == 0) != good {
			t.Errorf("%s: found %q", expr, wrong)
		}
	}
}
