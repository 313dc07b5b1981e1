package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/archive"
	"github.com/farol-preservation/farol/internal/commands/control"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// facts are what a channel says, by name.
type facts map[string]string

func (f facts) is(name string, value any) { f[name] = fmt.Sprint(value) }

// busy is a site of which each channel has something to say.
func busy(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 hour'`)
	s.exec(`UPDATE stage_settings SET cap = 2 WHERE action = 'Ingest' AND stage = 'Record'`)
	s.exec(`INSERT INTO worker_processes (worker, node, host, pid, pid_started, heartbeat, pools)
		VALUES ('w1', 'node-1', 'host', 7, 1, interval '1 minute', '[{"name": "all", "slots": 10, "stages": ["Receive", "Record"]}]')`)
	put := func(n int, set string) {
		t.Helper()
		for range n {
			s.scene(`UPDATE work_items SET `+set+` WHERE id = $1`, s.item(fmt.Sprintf("bag-%d.tar", ask[int](s, `SELECT count(*) FROM work_items`)), ""))
		}
	}
	const claimed = `status = 'Started', stage = 'Record', claim_token = 3, entered_token = 2, attempt = 1, node = 'node-1', pid = 7,
		lease_expires_at = now() + interval '1 hour', stage_started_at = now(), worker = `
	put(3, `run_at = now() - interval '1 minute'`)
	put(1, `run_at = now() + interval '1 hour'`)
	put(1, claimed+`'w1'`)
	put(1, claimed+`'program over HTTP'`)
	put(2, `status = 'Suspended', stage = 'Store', retry = false, needs_admin_review = true, error_code = 'storage-unavailable', claim_token = 3, entered_token = 2`)
	put(10, `status = 'Success', stage = 'Cleanup', retry = false, updated_at = now() - interval '1 minute'`)
	put(4, `status = 'Success', stage = 'Cleanup', retry = false, updated_at = now() - interval '70 minutes'`)
	s.exec(`INSERT INTO alerts (type, subject, content) VALUES ('Worker Lost', 's', 'One.'), ('Worker Lost', 's', 'Two.')`)
	s.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	for _, name := range []string{"read", "unread"} {
		s.keeps(s.test, name, "Standard", 7)
	}
	s.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'https://y/' || uuid, 'Standard-OR', 'b', uuid, now(), now() FROM generic_files`)
	s.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '3 days' WHERE generic_file_id = (SELECT min(id) FROM generic_files)`)
	s.exec(`INSERT INTO known_services (service, of_process, scopes) VALUES ('redis', false, '[]')`)
	must.Get(s.registry.HoldService(t.Context(), "redis", "Maintenance until noon."))(t)
	return s
}

// Each channel says the same of one state: command line, API, console, metrics and the views of
// the database. A figure that is computed in two ways is found here when the ways part.
func TestChannelsAgree(t *testing.T) { //nolint:paralleltest // commands read the environment
	s := busy(t)
	t.Setenv("FAROL_DATABASE_URL", s.db.Config().ConnString())
	want := facts{
		"due": "3", "delayed": "1", "waiting": "0", "not running": "4", "running": "2", "parked": "2", "running at Record": "2", "cap of Record": "2",
		"slots taken": "1", "slots": "10", "in no slot": "1", "done in the last hour": "10", "unread alerts": "2",
		"Standard-VA in time": "100.00 %", "Standard-OR in time": "", "copies promised": "2", "never read": "1", "redis": ask[string](s, `SELECT service_text(s) FROM services s WHERE service = 'redis'`),
	}
	o := s.in(registry.RoleAdmin, "")
	for channel, says := range map[string]facts{
		"API": apiSays(o), "console": consoleSays(o), "command line": commandsSay(t), "metrics": metricsSay(t, s), "SQL": viewsSay(s),
	} {
		for name, value := range says {
			if want[name] != value {
				t.Errorf("%s: %s is %q, want %q", channel, name, value, want[name])
			}
		}
		if len(says) < 5 {
			t.Errorf("%s says %v", channel, says)
		}
	}
	if o.open("/"); t.Failed() {
		return
	}
	// All figures of a page are of one moment, also when the queue has moved on since.
	s.scene(`UPDATE work_items SET status = 'Success', stage = 'Cleanup', retry = false, lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL WHERE status = 'Started'`)
	later := wallSays(o)
	was, is := later["running"] == "2" && later["slots taken"] == "1" && later["in no slot"] == "1", later["running"] == "0" && later["slots taken"] == "0" && later["in no slot"] == ""
	if !was && !is {
		t.Errorf("figures of two moments: %v", later)
	}
}

// readJSON reads an answer of the API, or of a command.
func readJSON[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func apiSays(o *browser) facts {
	f := facts{}
	get := func(path string) string { return o.open("/api/v1/" + path).text }
	q := readJSON[record.QueueView](o.t, get("queue"))
	f.is("due", q.Total.Due)
	f.is("delayed", q.Total.Delayed)
	f.is("waiting", q.Total.Waiting)
	f.is("running", q.Total.Running)
	f.is("parked", q.Total.Parked)
	taken, all := 0, 0
	for _, w := range q.Workers {
		taken, all = taken+w.Running, all+*w.Slots
	}
	f.is("slots taken", taken)
	f.is("slots", all)
	f.ofStages(readJSON[struct{ Items []record.QueueStage }](o.t, get("stages")).Items)
	recent := int64(0)
	for _, h := range readJSON[record.HistoryView](o.t, get("queue/history")).Hours {
		if h.Status == registry.Success {
			recent += h.Recent
		}
	}
	f.is("done in the last hour", recent)
	f.is("unread alerts", len(readJSON[struct{ Items []any }](o.t, get("alerts?unread=true")).Items))
	a := readJSON[record.FixityView](o.t, get("fixity")).Archive
	f.is("copies promised", a.Copies)
	f.is("never read", a.Unread)
	for _, t := range a.Targets {
		if t.Copies > 0 {
			f.is(t.Target+" in time", t.InTime())
		}
	}
	for _, one := range readJSON[struct{ Items []record.Service }](o.t, get("services")).Items {
		f.is(one.Service, one.Text)
	}
	return f
}

func (f facts) ofStages(list []record.QueueStage) {
	var waiting, running, parked int64
	for _, one := range list {
		waiting, running, parked = waiting+one.Waiting, running+one.Running, parked+one.Parked
		if one.Action == "Ingest" && one.Stage == "Record" {
			f.is("running at Record", one.Running)
			f.is("cap of Record", one.Cap)
		}
	}
	f.is("not running", waiting)
	f.is("running", running)
	f.is("parked", parked)
}

// read puts what a pattern finds on a page into facts; "" is what is not there.
func (f facts) read(page, pattern string, names ...string) {
	found := regexp.MustCompile(pattern).FindStringSubmatch(page)
	for i, name := range names {
		if f[name] = ""; found != nil {
			f[name] = found[i+1]
		}
	}
}

func wallSays(o *browser) facts {
	f, wall := facts{}, wordsIn(o.open("/wall").text)
	f.read(wall, `due (\d+) running (\d+) .*done in the last hour (\d+) parked (\d+) slots taken (\d+) / (\d+)`,
		"due", "running", "done in the last hour", "parked", "slots taken", "slots")
	f.read(wall, `(\d+) items? runs? in no slot`, "in no slot")
	return f
}

func consoleSays(o *browser) facts {
	f := wallSays(o)
	now, queue, fixity := wordsIn(o.open("/").text), wordsIn(o.open("/queue").text), wordsIn(o.open("/fixity").text)
	f.read(now, `Alerts (\d+)`, "unread alerts")
	if !strings.Contains(now, "You have unread alerts: "+f["unread alerts"]+".") || strings.Contains(now, "Nothing needs you") {
		o.t.Errorf("beside %s unread alerts: %s", f["unread alerts"], now)
	}
	for name, page := range map[string]string{"Now": now, "Queue": queue} {
		g := facts{}
		g.read(page, `cap (\d+) of (\d+)`, "running at Record", "cap of Record")
		maps.Copy(f, g)
		if g["cap of Record"] == "" {
			o.t.Errorf("%s names no cap: %s", name, page)
		}
	}
	f.read(now, `(\d+) items are due, (\d+) run, (\d+) is delayed and (\d+) wait`, "due", "running", "delayed", "waiting")
	f.read(queue, `(\d+) due, the first .* (\d+) running (\d+) delayed until`, "due", "running", "delayed")
	f.read(fixity, `Standard-OR off \d+ (–|[0-9.]+ %)`, "Standard-OR in time")
	if f["Standard-OR in time"] == "–" {
		f["Standard-OR in time"] = ""
	}
	f.read(fixity, `Standard-VA every 90 days \d+ ([0-9.]+ %)`, "Standard-VA in time")
	f.read(fixity, `of (\d+) copies are not bad\. Of these, verified when stored and not read since: (\d+)\.`, "copies promised", "never read")
	if strings.Contains(fixity, "All copies were checked") {
		o.t.Errorf("the page says that all were checked: %s", fixity)
	}
	if held := ask[string](o.s, `SELECT service_text(s) FROM services s WHERE service = 'redis'`); strings.Contains(wordsIn(o.open("/services").text), held) && strings.Contains(now, held) {
		f.is("redis", held)
	}
	return f
}

func commandsSay(t *testing.T) facts {
	t.Helper()
	f := facts{}
	run := func(c *cobra.Command, args ...string) string {
		var out bytes.Buffer
		c.SetArgs(args)
		c.SetOut(&out)
		c.SetErr(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		if err := c.ExecuteContext(t.Context()); err != nil && out.Len() == 0 {
			t.Fatalf("%s %q: %v", c.Name(), args, err)
		}
		return out.String()
	}
	f.ofStages(readJSON[[]record.QueueStage](t, run(control.Stage(), "list", "--json")))
	for _, w := range readJSON[[]record.Worker](t, run(control.Workers(), "--json")) {
		f.is("slots taken", w.Running)
		f.is("slots", *w.Slots)
	}
	for _, one := range readJSON[[]record.Service](t, run(control.Services(), "--json")) {
		f.is(one.Service, one.Text)
	}
	status := run(archive.Fixity(), "status")
	f.read(status, `of (\d+) copies are not bad\.\nOf these, verified when stored and not read since: (\d+)\.`, "copies promised", "never read")
	f.read(status, `Standard-VA +read +90\* +\d+ +\d+ +\d+ +([0-9.]+ %)`, "Standard-VA in time")
	f.read(status, `Standard-OR +off +- +\d+ +\d+ +- +(-|[0-9.]+ %)`, "Standard-OR in time")
	if f["Standard-OR in time"] == "-" {
		f["Standard-OR in time"] = ""
	}
	return f
}

func metricsSay(t *testing.T, s *site) facts {
	t.Helper()
	q := must.Get(monitor.NewQueue(t.Context(), "test", settings.Database{URL: storage.Secret(s.db.Config().ConnString())}, slog.New(slog.DiscardHandler)))(t)
	defer q.Close()
	r := prometheus.NewRegistry()
	r.MustRegister(q)
	families := must.Get(r.Gather())(t)
	sums := map[string]float64{"due": 0, "delayed": 0, "waiting": 0, "running": 0, "parked": 0, "running at Record": 0}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			for _, state := range []string{"due", "delayed", "waiting", "running"} {
				if family.GetName() == "farol_queue_items" && slices.Contains(labels, state) {
					sums[state] += m.GetGauge().GetValue()
					if state == "running" && slices.Contains(labels, "Record") {
						sums["running at Record"] += m.GetGauge().GetValue()
					}
				}
			}
			if family.GetName() == "farol_failed_items" {
				sums["parked"] += m.GetGauge().GetValue()
			}
		}
	}
	f := facts{}
	for name, sum := range sums {
		f.is(name, sum)
	}
	return f
}

func viewsSay(s *site) facts {
	f := facts{}
	for name, sql := range map[string]string{
		"due": `SELECT sum(due) FROM queue_depth`, "delayed": `SELECT sum(delayed) FROM queue_depth`, "waiting": `SELECT sum(waiting) FROM queue_depth`,
		"running": `SELECT count(*) FROM running`, "running at Record": `SELECT sum(running) FROM queue_depth WHERE stage = 'Record'`,
		"parked": `SELECT count(*) FROM failed`, "slots taken": `SELECT sum(running) FROM workers`, "slots": `SELECT sum(slots) FROM workers`,
	} {
		f.is(name, ask[string](s, `SELECT (`+sql+`)::bigint::text`))
	}
	f.is("parked", ask[int](s, `SELECT count(*) FROM needs_review`))
	return f
}
