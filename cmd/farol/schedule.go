package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

func scheduleCommand() *cobra.Command {
	var wait waiting
	c := op.Command{
		Use:   "schedule",
		Short: "Run recurring jobs: read buckets, schedule fixity checks, poll Glacier, clean up, send mail",
		Long: `Run the recurring jobs when they are due, until SIGTERM or Ctrl-C:

` + jobsHelp() + `
Any number of schedulers may run: one of them makes each run of a job. If it is killed,
another takes over within two minutes. An interval of 0 disables a job.

Exit codes of --once: 0 success; 1 a job failed in part; 2 usage error.`,
		Example: `  farol schedule
  farol schedule --jobs read-buckets,janitor
  farol schedule --once`,
		Flags: []op.Flag{
			{Name: "jobs", Help: "only these jobs, separated by commas"},
			{Name: "once", Kind: op.Truth, Help: "run each job that is due once, and exit"},
		},
	}.Alone(func(c *op.Call) error {
		chosen, err := chooseJobs(c.Text("jobs"))
		switch {
		case err != nil:
			return err
		case c.Given("once"):
			return runDueJobs(c, chosen)
		case c.JSON:
			return cli.Usage(errors.New("--json goes with --once"), "for a service, set FAROL_LOG_FORMAT=json: its log is JSON then")
		}
		return orderly(c.Cmd.Context(), runSchedule(c.Cmd.Context(), chosen, wait))
	})
	wait.flag(c, startWait)
	c.AddCommand(scheduleRunCommand(), scheduleListCommand(), schedulePauseCommand("pause", true), schedulePauseCommand("resume", false))
	return c
}

// jobsHelp lists the jobs with what they do and the settings of their intervals.
func jobsHelp() string {
	var b strings.Builder
	for _, j := range jobs() {
		fmt.Fprintf(&b, "  %-14s %s (%s)\n", j.name, j.does, j.setting)
	}
	return b.String()
}

// chooseJobs reads a list of jobs; "" is all.
func chooseJobs(list string) (chosen []string, err error) {
	known := jobNames()
	if list == "" {
		return known, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return nil, cli.Usage(fmt.Errorf("there is no job %q", name), "the jobs are "+strings.Join(known, ", "))
		}
		if !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	return chosen, nil
}

func scheduleRunCommand() *cobra.Command {
	return op.Command{
		Use:   "run JOB",
		Short: "Run a job now, even if it is not due or is paused",
		Long: `Run a job now. Its next run is due after its interval. With --server, the job becomes due:
the next scheduler that polls runs it, unless it is paused.

Exit codes: 0 success; 1 it failed in part, or another process runs it; 2 usage error.`,
		Example: `  farol schedule run janitor
  farol schedule run read-buckets --json`,
		Arg: "job",
	}.Alone(func(c *op.Call) error {
		if !slices.Contains(jobNames(), c.Arg) {
			return cli.Usage(fmt.Errorf("there is no job %q", c.Arg), "the jobs are "+strings.Join(jobNames(), ", "))
		}
		if remote.From(c.Cmd.Context()) == nil {
			return runJobNow(c)
		}
		return remote.Do(c.Cmd, func(ctx context.Context, s *remote.Server) error { return runJobSoon(ctx, c, s) })
	})
}

// holderName names this process to others, and no other start of it.
func holderName(command string) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d-%s-%04x", host, os.Getpid(), command, rand.N(1<<16))
}

// scheduling is a scheduler with what its jobs work with.
type scheduling struct {
	*connect.Services
	*upkeep.Scheduler
	config  settings.Scheduler
	metrics *monitor.Runs
}

// opening is how a process opens what it needs: see [waiting.open] and [openNow].
type opening func(context.Context, preflight.Surroundings, settings.HTTP, *slog.Logger) (*connect.Services, error)

// connectScheduler opens what the jobs need, and nothing else.
func connectScheduler(ctx context.Context, chosen []string, open opening) (*scheduling, error) {
	config, err := connect.Load(settingsOf(chosen))
	if err != nil {
		return nil, err
	}
	needs := preflight.Surroundings{Command: "schedule", Database: &config.Database, Redis: config.Redis, S3: config.S3, Storage: config.Storage}
	if needs.Storage != nil {
		needs.S3 = &needs.Storage.S3
	}
	s, err := open(ctx, needs, config.HTTP, connect.NewLogger(config.Log))
	if err != nil {
		return nil, err
	}
	c := newScheduling("schedule", s, config, chosen)
	for _, j := range jobs() {
		if slices.Contains(chosen, j.name) {
			c.Jobs = append(c.Jobs, j.make(c))
		}
	}
	return c, nil
}

func newScheduling(command string, s *connect.Services, config settings.Scheduler, chosen []string) *scheduling {
	metrics := monitor.NewRuns(chosen)
	return &scheduling{s, &upkeep.Scheduler{
		Registry: s.Registry, Holder: holderName(command), Observe: metrics.Observe, Log: connect.NewLogger(config.Log),
	}, config, metrics}
}

// leaveOut leaves out the jobs whose interval is 0.
func (c *scheduling) leaveOut() error {
	c.Jobs = slices.DeleteFunc(c.Jobs, func(j upkeep.Job) bool { return j.Every <= 0 })
	if len(c.Jobs) == 0 {
		return cli.Usage(errors.New("there is no job to run: the intervals of all are 0"), "set one of them, or choose other --jobs")
	}
	return nil
}

func runSchedule(ctx context.Context, chosen []string, wait waiting) error {
	c, err := connectScheduler(ctx, chosen, wait.open)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.leaveOut(); err != nil {
		return err
	}
	return c.serve(ctx, "schedule")
}

// serve runs the jobs, with metrics and health, until ctx is done.
func (c *scheduling) serve(ctx context.Context, command string) error {
	figures, err := monitor.NewQueue(ctx, command, c.config.Database, c.Log)
	if err != nil {
		return err
	}
	defer figures.Close()
	ends, traces, err := endsOf(ctx, command, c.config.Traces, c.metrics.Registry, c.Log)
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	c.metrics.Registry.MustRegister(figures, monitor.NewJobs(figures.Registry), monitor.NewOutbox(figures.Registry))
	sources, err := c.receiveEvents(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(c.Jobs))
	for i, j := range c.Jobs {
		names[i] = j.Name
	}
	c.Log.InfoContext(ctx, "scheduling", "scheduler", c.Holder, "jobs", names)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := func() error {
		return reaping(ctx, c.DB, ends, c.Log, func(ctx context.Context) error {
			sources.alongside(ctx, c.Run)
			return nil
		})
	}
	return watched(ctx, stop, run, func(ctx context.Context, ready readiness) error {
		return monitor.Serve(ctx, c.config.HTTP.Addr, c.metrics.Registry, ready(monitor.Answers(c.Services.Registry.Ping)), c.Log, sources.routes...)
	})
}

func runDueJobs(call *op.Call, chosen []string) error {
	c, err := connectScheduler(call.Cmd.Context(), chosen, openNow)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.leaveOut(); err != nil {
		return err
	}
	runs, err := c.Once(call.Cmd.Context())
	if len(runs) == 0 && err == nil && !call.JSON {
		_, err = fmt.Fprintln(call.Cmd.OutOrStdout(), "Nothing is due.")
	}
	return errors.Join(err, reportRuns(call, runs...))
}

// runJobSoon has a server make a job due.
func runJobSoon(ctx context.Context, c *op.Call, s *remote.Server) error {
	j, err := remote.Send[record.Schedule](ctx, s, http.MethodPost, c.Path("schedules/{}/run"), nil)
	if err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol schedule list` shows the jobs and their states"}
	}
	return cli.Printf(c.Cmd, c.JSON, j, "%s is due now. `farol schedule list` shows its result when a scheduler has run it.\n", j.Job)
}

func runJobNow(call *op.Call) error {
	ctx, name := call.Cmd.Context(), call.Arg
	c, err := connectScheduler(ctx, []string{name}, openNow)
	if err != nil {
		return err
	}
	defer c.Close()
	run, err := c.Now(ctx, c.Jobs[0])
	busy := errors.Is(err, upkeep.ErrBusy)
	if err == nil || busy {
		entry := registry.AuditEntry{Operation: "schedules.run", SubjectType: "schedule", SubjectID: name}
		refused := err
		if busy {
			refused = errors.Join(registry.ErrRefused, err)
		}
		if noted := c.Services.Registry.Noted(ctx, registry.Actor{}, entry, refused); noted != nil && !busy {
			return noted
		}
	}
	if busy {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s: %w", name, err),
			Next: "`farol schedule list` shows which process runs it; try again when it has ended",
		}
	}
	if err != nil {
		return err
	}
	return reportRuns(call, run)
}

// runView is a run of a job as JSON.
type runView struct {
	Job     string  `json:"job"`
	Outcome string  `json:"outcome"`
	Result  string  `json:"result"`
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
}

func viewOf(r upkeep.JobRun) runView {
	v := runView{Job: r.Job, Outcome: fmt.Sprint(r.Outcome), Result: r.Result, Seconds: r.Took.Seconds()}
	if r.Err != nil {
		v.Error = cli.InWords(r.Err)
	}
	return v
}

// reportRuns prints the results of runs, and returns their errors.
func reportRuns(c *op.Call, runs ...upkeep.JobRun) error {
	var errs []error
	var views []runView
	var text strings.Builder
	for _, r := range runs {
		views = append(views, viewOf(r))
		fmt.Fprintf(&text, "%s: %s in %v", r.Job, r.Outcome, r.Took.Round(time.Millisecond))
		if r.Result != "" {
			text.WriteString(": " + human.Line(r.Result))
		}
		text.WriteString("\n")
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Job, r.Err))
		}
	}
	if err := cli.Printf(c.Cmd, c.JSON, views, "%s", text.String()); err != nil {
		return err
	}
	if len(errs) == 0 {
		return nil
	}
	return cli.Failure{Code: cli.ExitFailed, Err: errors.Join(errs...), Next: "fix what is named above; the next run continues with the rest"}
}
