package queue

import (
	"context"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/stores"
	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type (
	serviceInput struct {
		Service string `path:"service" maxLength:"200" doc:"Name of the service, such as redis"`
		Body    pauseBody
	}
	stageBody struct {
		Name        registry.Stage `json:"name" minLength:"1" maxLength:"100" doc:"Letters, digits and single spaces, with a capital at the beginning"`
		After       registry.Stage `json:"after" minLength:"1" maxLength:"100" doc:"The stage before it"`
		Topic       string         `json:"topic,omitempty" maxLength:"64" doc:"Its NSQ topic; without it, ingest_ and its name"`
		MaxAttempts int            `json:"max_attempts,omitempty" default:"3" minimum:"1" maximum:"1000" doc:"After which an item waits for a person"`
		Lease       int            `json:"lease_seconds,omitempty" default:"30" minimum:"1" maximum:"86400" doc:"Time without a heartbeat after which a worker loses an item"`
		Heartbeat   int            `json:"heartbeat_seconds,omitempty" minimum:"1" maximum:"28800" doc:"Without it, a third of the lease, and ten seconds at most"`
		Timeout     int            `json:"timeout_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"How long the stage may take; 0: no limit"`
	}
)

// services are what workers need, such as buckets and Redis.
func (a *handlers) services(t *ops.API) {
	ops.Register(t, answer.Reads("services.list", "/api/v1/services", "List services with their state and the items that wait for them", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.Service]], error) {
			found, err := a.Registry.Services(ctx)
			return answer.All(found), err
		})
	for verb, summary := range map[string]string{
		"hold":    "Hold a service: stop claims of items that need it, until it is released",
		"release": "Release a held service, and have workers try it now",
	} {
		ops.Register(t, ops.Operation{
			ID: "services." + verb, Method: http.MethodPost, Path: "/api/v1/services/{service}/" + verb, Summary: summary, Access: ops.Holders, Needs: permission.QueuePause, Audit: true,
		}, func(ctx context.Context, c access.Caller, in *serviceInput) (*answer.Body[answer.List[record.Service]], error) {
			entry := registry.AuditEntry{Operation: "services." + verb, SubjectType: "service", SubjectID: in.Service, Detail: map[string]any{"reason": in.Body.Reason}}
			changed, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) ([]record.Service, error) {
				if verb == "hold" {
					return a.Registry.HoldService(ctx, in.Service, registry.CleanText(in.Body.Reason))
				}
				return a.Registry.ReleaseService(ctx, in.Service)
			})
			return answer.All(changed), err
		})
	}
}

// A StoreView is a store with what it can do, and what Farol does instead of what it cannot.
type StoreView struct {
	Endpoint   string                   `json:"endpoint"`
	Server     string                   `json:"server" doc:"As its answers name it; empty: they do not"`
	MeasuredAt *time.Time               `json:"measured_at" doc:"When all was tried by farol check --write; null: it was not"`
	SeenAt     time.Time                `json:"seen_at" doc:"When something of it was last seen to be otherwise"`
	Ways       []WayView                `json:"ways" doc:"What it can do or not; what was not seen yet is left out"`
	Buckets    map[string]stores.Bucket `json:"buckets" doc:"By name"`
}

// A WayView is something that stores can do or not.
type WayView struct {
	Way     ability.Way `json:"way" doc:"Such as copied-part-sha256"`
	Can     bool        `json:"can"`
	At      time.Time   `json:"at" doc:"When that was seen"`
	Said    string      `json:"said,omitempty" doc:"The refusal, in a few words"`
	Instead string      `json:"instead,omitempty" doc:"What Farol does instead"`
}

// stores are the S3 services with the buckets of Farol.
func (a *handlers) stores(t *ops.API) {
	ops.Register(t, answer.Reads("stores.list", "/api/v1/stores", "List S3 stores with what each can do, as far as was seen", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[StoreView]], error) {
			found, err := stores.In(a.Registry).List(ctx)
			var views []StoreView
			for _, s := range found {
				views = append(views, storeView(s))
			}
			return answer.All(views), err
		})
}

func storeView(s stores.Store) StoreView {
	v := StoreView{Endpoint: s.Endpoint, Server: s.Server, MeasuredAt: s.MeasuredAt, SeenAt: s.SeenAt, Buckets: s.Buckets}
	for _, way := range ability.Ways() {
		seen, known := s.Ways[string(way)]
		if !known {
			continue
		}
		one := WayView{Way: way, Can: seen.Can, At: seen.At, Said: seen.Said}
		if !seen.Can {
			one.Instead = way.Instead()
		}
		v.Ways = append(v.Ways, one)
	}
	return v
}

// addedStages are ingest stages that programs process over HTTP.
func (a *handlers) addedStages(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "stages.add", Method: http.MethodPost, Path: "/api/v1/stages", Summary: "Add an ingest stage that programs process over HTTP", Status: http.StatusCreated,
		About: "Workers learn of it within seconds; bags that finish the stage before it in these seconds skip it.", Access: ops.Holders, Needs: permission.StagesWrite, Audit: true,
	}, func(ctx context.Context, c access.Caller, in *answer.Body[stageBody]) (*answer.Body[record.QueueStage], error) {
		b := in.Body
		if b.Heartbeat > 0 && b.Lease < 3*b.Heartbeat {
			return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "lease_seconds is less than three heartbeats; give a longer lease, or a shorter heartbeat_seconds")
		}
		seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
		entry := registry.AuditEntry{Operation: "stages.add", SubjectType: "stage", SubjectID: string(b.Name), Detail: map[string]any{"after": b.After}}
		return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.QueueStage], error) {
			s, err := a.Registry.AddStage(ctx, registry.NewStage{
				Name: b.Name, After: b.After, Topic: b.Topic, MaxAttempts: b.MaxAttempts, Lease: seconds(b.Lease), Heartbeat: seconds(b.Heartbeat), Timeout: seconds(b.Timeout),
			})
			return answer.Of(s), err
		})
	})
	ops.Register(t, ops.Operation{
		ID: "stages.remove", Method: http.MethodDelete, Path: "/api/v1/stages/{action}/{stage}", Summary: "Remove an added stage, if no item waits or runs at it",
		About: "Items that are parked at it stay parked, and can be requeued to another stage.", Access: ops.Holders, Needs: permission.StagesWrite, Audit: true,
	}, func(ctx context.Context, c access.Caller, in *ByStage) (*answer.Body[record.QueueStage], error) {
		if in.Action != "Ingest" {
			return nil, registry.ErrNotFound // stages are added to ingests only
		}
		entry := registry.AuditEntry{Operation: "stages.remove", SubjectType: "stage", SubjectID: string(in.Stage)}
		return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.QueueStage], error) {
			s, err := a.Registry.RemoveStage(ctx, in.Stage)
			return answer.Of(s), err
		})
	})
}
