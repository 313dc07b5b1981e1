package queue

import (
	"context"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// healthAge is how old the answer of the database may be.
const healthAge = time.Second

// endedShown is how many workers are listed that have ended.
const endedShown = 20

type (
	byWorker struct {
		Worker string `path:"worker" maxLength:"255" doc:"Name of the worker"`
	}
	// ByJob is a request about one recurring job.
	ByJob struct {
		Job string `path:"job" maxLength:"63" doc:"Name of the job, such as janitor"`
	}
	schedulePatch struct {
		ByJob
		Body struct {
			Paused *bool  `json:"paused,omitempty" doc:"Whether the job is left out when it is due"`
			Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why it is paused"`
		}
	}
	healthView struct {
		Status string `json:"status" enum:"up"`
	}
	versionView struct {
		Version string `json:"version"`
	}
)

// health is whether this server and its database answer.
func (a *handlers) health(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "health.show", Method: http.MethodGet, Path: "/api/v1/health", Summary: "Report whether the server and its database answer", Access: ops.Anyone,
		About: "200: both do. 503: the database does not. It is asked once a second at most.",
	},
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[healthView], error) {
			_, _, err := a.figures.health.Get(ctx, healthAge, func(ctx context.Context) (struct{}, error) {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				return struct{}{}, a.Registry.Ping(ctx)
			})
			return answer.Of(healthView{"up"}), err
		})
	ops.Register(t, ops.Operation{ID: "health.version", Method: http.MethodGet, Path: "/api/v1/version", Summary: "Show the version of the server", Access: ops.SignedIn},
		func(context.Context, access.Caller, *answer.Empty) (*answer.Body[versionView], error) {
			return answer.Of(versionView{a.Version}), nil
		})
}

// workers are the live worker processes.
func (a *handlers) workers(t *ops.API) {
	ops.Register(t, answer.Reads("workers.list", "/api/v1/workers", "List live worker processes", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.Worker]], error) {
			found, err := a.Registry.Workers(ctx)
			return answer.All(found), err
		})
	ops.Register(t, answer.Reads("workers.ended", "/api/v1/workers/ended", "List the last 20 worker processes that have ended, and how", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.EndedWorker]], error) {
			found, err := a.Registry.EndedWorkers(ctx, endedShown)
			return answer.All(found), err
		})
	ops.Register(t, ops.Operation{
		ID: "workers.drain", Method: http.MethodPost, Path: "/api/v1/workers/{worker}/drain", Summary: "Drain a worker", Access: ops.Holders, Needs: permission.WorkersDrain, Audit: true,
		About: "It claims nothing more, gives running stages its grace period to end, returns the other items to the queue, and stops. This cannot be undone: start the worker again.",
	},
		func(ctx context.Context, c access.Caller, in *byWorker) (*answer.Body[record.Worker], error) {
			entry := registry.AuditEntry{Operation: "workers.drain", SubjectType: "worker", SubjectID: in.Worker}
			w, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.Worker, error) { return a.Registry.Drain(ctx, in.Worker) })
			return answer.Of(w), err
		})
}

// schedules are the recurring jobs.
func (a *handlers) schedules(t *ops.API) {
	ops.Register(t, answer.Reads("schedules.list", "/api/v1/schedules", "List recurring jobs with their last result and next run", "", permission.SchedulesRead),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.Schedule]], error) {
			found, err := upkeep.In(a.Registry).Schedules(ctx)
			return answer.All(append([]record.Schedule{}, found...)), err
		})
	ops.Register(t, ops.Operation{
		ID: "schedules.set", Method: http.MethodPatch, Path: "/api/v1/schedules/{job}", Summary: "Pause or resume a recurring job", Access: ops.Holders, Needs: permission.SchedulesWrite, Audit: true,
		About: "The job is run again when no pause is left. Pauses of other people stay, and are in the answer: POST /api/v1/stages/resume ends one by its ID.",
	},
		func(ctx context.Context, c access.Caller, in *schedulePatch) (*answer.Body[record.Schedule], error) {
			if in.Body.Paused == nil {
				return nil, answer.NothingToSet("paused")
			}
			return a.changeSchedule(ctx, c, "schedules.set", in.Job, map[string]any{"set": in.Body}, func(ctx context.Context, r upkeep.Records) (record.Schedule, error) {
				return r.PauseSchedule(ctx, in.Job, *in.Body.Paused, in.Body.Reason)
			})
		})
	ops.Register(t, ops.Operation{
		ID: "schedules.run", Method: http.MethodPost, Path: "/api/v1/schedules/{job}/run", Summary: "Have a recurring job run now", Status: http.StatusAccepted, Access: ops.Holders,
		Needs: permission.SchedulesWrite, Audit: true, About: "The next scheduler that polls runs it; GET /api/v1/schedules shows the result. A job that is paused or in progress is refused.",
	},
		func(ctx context.Context, c access.Caller, in *ByJob) (*answer.Body[record.Schedule], error) {
			return a.changeSchedule(ctx, c, "schedules.run", in.Job, nil, func(ctx context.Context, r upkeep.Records) (record.Schedule, error) { return r.RunSoon(ctx, in.Job) })
		})
}

func (a *handlers) changeSchedule(ctx context.Context, c access.Caller, operation, job string, detail map[string]any, do func(context.Context, upkeep.Records) (record.Schedule, error)) (*answer.Body[record.Schedule], error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "schedule", SubjectID: job, Detail: detail}
	s, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.Schedule, error) { return do(ctx, upkeep.In(a.Registry)) })
	return answer.Of(s), err
}
