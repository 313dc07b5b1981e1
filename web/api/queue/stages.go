package queue

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// ByStage is a request about one stage of an action.
type ByStage struct {
	Action registry.Action `path:"action" maxLength:"100" doc:"Such as Ingest"`
	Stage  registry.Stage  `path:"stage" maxLength:"100" doc:"Such as Store"`
}

func (s ByStage) id() string { return string(s.Action) + "/" + string(s.Stage) }

type stagePatch struct {
	ByStage
	answer.Condition
	Body StageSet
}

// StageSet are the settings of a stage that change.
type StageSet struct {
	Cap         *int   `json:"cap,omitempty" minimum:"0" maximum:"2147483647" doc:"Items at the stage at the same time in all processes; 0: no limit"`
	Timeout     *int64 `json:"timeout_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"How long the stage may take; 0: no limit"`
	MaxAttempts *int   `json:"max_attempts,omitempty" minimum:"1" maximum:"1000" doc:"Attempts after which an item waits for a person"`
}

// change is the change to the stages of an action; "": of all.
func (s StageSet) change(action registry.Action) (registry.StageChange, error) {
	c := registry.StageChange{Action: action, Cap: s.Cap, MaxAttempts: s.MaxAttempts}
	if s.Timeout != nil {
		timeout := time.Duration(*s.Timeout) * time.Second
		c.Timeout = &timeout
	}
	if c.Cap == nil && c.Timeout == nil && c.MaxAttempts == nil {
		return c, answer.NothingToSet("cap, timeout_seconds or max_attempts")
	}
	return c, nil
}

// AllStages are the stages of all actions.
type AllStages struct {
	Stage  registry.Stage `json:"stage,omitempty" maxLength:"100" doc:"Only this stage, of all actions that have it"`
	DryRun bool           `json:"dry_run,omitempty" doc:"Show what is paused now, and change nothing"`
}

type (
	pauseBody struct {
		AllStages
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Shown for items that wait"`
	}
	resumeBody struct {
		AllStages
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Kept with the action"`
		Pause  int64  `json:"pause,omitempty" minimum:"1" doc:"ID of the only pause to end, no matter who made it; also a hold of a service"`
	}
	stagePauseInput struct {
		ByStage
		Body pauseBody
	}
)

// stages are the steps of all actions.
func (a *handlers) stages(t *ops.API) {
	ops.Register(t, answer.Reads("stages.list", "/api/v1/stages", "List stages in their order, with the items at each",
		"People of an institution see the numbers of its items. Who paused a stage, and why, is for staff and operators.", permission.QueueRead), a.listStages)
	ops.Register(t, answer.Reads("stages.show", "/api/v1/stages/{action}/{stage}", "Show a stage", "", permission.QueueRead),
		func(ctx context.Context, c access.Caller, in *ByStage) (*answer.Tagged[record.StageSettings], error) {
			return a.stage(ctx, c, *in)
		})
	ops.Register(t, ops.Operation{
		ID: "stages.set", Method: http.MethodPatch, Path: "/api/v1/stages/{action}/{stage}", Summary: "Set the cap, timeout and maximum attempts of a stage",
		About: "Workers apply a change within five seconds.", Access: ops.Holders, Needs: permission.StagesWrite, Audit: true,
	}, a.setStage)
	ops.Register(t, ops.Operation{
		ID: "stages.set_all", Method: http.MethodPatch, Path: "/api/v1/stages", Summary: "Set the cap, timeout and maximum attempts of a stage of all actions",
		About: "Workers apply a change within five seconds.", Access: ops.Holders, Needs: permission.StagesWrite, Audit: true,
	}, a.setStages)
	for _, paused := range []bool{true, false} {
		verb, summary, about := "resume", "End your pauses of a stage", "The stage is claimed again when no pause is left. Pauses of other people stay, and are in the answer: POST /api/v1/stages/resume ends one by its ID."
		if paused {
			verb, summary, about = "pause", "Pause a stage: what runs continues, and new items wait", "Each person has a pause of their own; paused again by the same person, it gets the new reason."
		}
		ops.Register(t, ops.Operation{
			ID: "stages." + verb, Method: http.MethodPost, Path: "/api/v1/stages/{action}/{stage}/" + verb, Summary: summary,
			About: about + " Fixity Check of Fixity Check stands for the checks of stored copies.", Access: ops.Holders, Needs: permission.QueuePause, Audit: true,
		},
			func(ctx context.Context, c access.Caller, in *stagePauseInput) (*answer.Body[answer.List[record.StagePause]], error) {
				return a.pause(ctx, c, "stages."+verb, in.id(), resumeBody{Reason: in.Body.Reason}, func(ctx context.Context) ([]record.StagePause, error) {
					return a.Registry.SetPaused(ctx, in.Action, in.Stage, paused, registry.CleanText(in.Body.Reason))
				})
			})
	}
	ops.Register(t, ops.Operation{
		ID: "stages.pause_all", Method: http.MethodPost, Path: "/api/v1/stages/pause", Summary: "Pause all stages and fixity checks, or one stage of all actions",
		Access: ops.Holders, Needs: permission.QueuePause, Audit: true,
	}, func(ctx context.Context, c access.Caller, in *answer.Body[pauseBody]) (*answer.Body[answer.List[record.StagePause]], error) {
		return a.pauseAll(ctx, c, "pause", resumeBody{AllStages: in.Body.AllStages, Reason: in.Body.Reason}, func(ctx context.Context) ([]record.StagePause, error) {
			return a.Registry.Pause(ctx, in.Body.Stage, registry.CleanText(in.Body.Reason))
		})
	})
	ops.Register(t, ops.Operation{
		ID: "stages.resume_all", Method: http.MethodPost, Path: "/api/v1/stages/resume", Summary: "End your pause of all stages and fixity checks, your pauses of one stage, or one pause",
		About:  "Stages that were paused one by one, or by other people, stay paused. With pause, that pause ends, no matter who made it, and no other.",
		Access: ops.Holders, Needs: permission.QueuePause, Audit: true,
	}, func(ctx context.Context, c access.Caller, in *answer.Body[resumeBody]) (*answer.Body[answer.List[record.StagePause]], error) {
		return a.pauseAll(ctx, c, "resume", in.Body, func(ctx context.Context) ([]record.StagePause, error) {
			if in.Body.Pause > 0 {
				return a.Registry.LiftPause(ctx, in.Body.Pause)
			}
			return a.Registry.Resume(ctx, in.Body.Stage)
		})
	})
}

// pauseAll changes pauses of all actions.
func (a *handlers) pauseAll(ctx context.Context, c access.Caller, verb string, in resumeBody, do func(context.Context) ([]record.StagePause, error)) (*answer.Body[answer.List[record.StagePause]], error) {
	switch {
	case in.DryRun:
		now, err := a.Registry.Pauses(ctx)
		return answer.All(now), err
	case in.Stage != "":
		return a.pause(ctx, c, "stages."+verb, string(in.Stage), in, do)
	}
	return a.pause(ctx, c, "stages."+verb+"_all", "all", in, do)
}

// pause changes pauses, and records it with the reason.
func (a *handlers) pause(ctx context.Context, c access.Caller, operation, subject string, in resumeBody, do func(context.Context) ([]record.StagePause, error)) (*answer.Body[answer.List[record.StagePause]], error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "stage", SubjectID: subject}
	if in.Reason != "" {
		entry.Detail = map[string]any{"reason": in.Reason}
	}
	if in.Pause > 0 {
		entry.Detail = map[string]any{"pause": in.Pause}
	}
	changed, err := answer.Act(ctx, a.Site, c, &entry, do)
	return answer.All(changed), err
}

func (a *handlers) listStages(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[record.StageList], error) {
	stages, err := a.Registry.StageSettings(ctx)
	if err != nil {
		return nil, err
	}
	q, age, err := a.Queue(ctx)
	if err != nil {
		return nil, err
	}
	v := record.StageList{Items: stages, Age: age.Seconds()}
	if v.Names, err = a.Registry.StageNames(ctx); err != nil {
		return nil, err
	}
	pauses, err := a.Registry.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pauses {
		if p.Stage == registry.FixityStage {
			v.Fixity = seenPause(c, p)
		}
	}
	for i := range v.Items {
		atStage(q, c, &v.Items[i])
	}
	return answer.Of(v), nil
}

// seenPause is a pause as a caller may see it: texts of staff are for staff.
func seenPause(c access.Caller, p record.StagePause) record.StagePause {
	if !c.Scope.All() {
		p.PausedBy, p.PauseReason, p.Pauses = nil, nil, nil
	}
	return p
}

// atStage adds how many of the items that the caller may see are at a stage, and leaves out
// what the caller may not see.
func atStage(q browse.Queue, c access.Caller, s *record.StageSettings) {
	for _, partition := range q.Of(c.Scope) {
		if partition.Action == s.Action && partition.Stage == s.Stage {
			s.Waiting, s.Running, s.Parked = s.Waiting+partition.Due+partition.Delayed+partition.Waiting, s.Running+partition.Running, s.Parked+partition.Parked
		}
	}
	if !c.Scope.All() {
		s.PausedBy, s.PauseReason, s.Pauses = nil, nil, nil
	}
}

// stageTag changes with the settings of a stage.
func stageTag(s record.StageSettings) string {
	s.Waiting, s.Running, s.Parked = 0, 0, 0
	text, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

func (a *handlers) stage(ctx context.Context, c access.Caller, in ByStage) (*answer.Tagged[record.StageSettings], error) {
	stages, err := a.Registry.StageSettings(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range stages {
		if s.Action == in.Action && s.Stage == in.Stage {
			tag := stageTag(s)
			q, _, err := a.Queue(ctx)
			atStage(q, c, &s)
			return &answer.Tagged[record.StageSettings]{ETag: tag, Body: s}, err
		}
	}
	return nil, registry.ErrNotFound
}

func (a *handlers) setStage(ctx context.Context, c access.Caller, in *stagePatch) (*answer.Tagged[record.StageSettings], error) {
	change, err := in.Body.change(in.Action)
	if err != nil {
		return nil, err
	}
	entry := registry.AuditEntry{Operation: "stages.set", SubjectType: "stage", SubjectID: in.id(), Detail: map[string]any{"set": in.Body}}
	_, err = answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (struct{}, error) {
		before, err := a.Registry.LockStage(ctx, in.Action, in.Stage)
		if err != nil {
			return struct{}{}, err
		}
		if m := strings.TrimSpace(in.IfMatch); m != "" && m != "*" && m != stageTag(before) {
			return struct{}{}, registry.ErrChanged
		}
		_, err = a.Registry.SetStage(ctx, in.Stage, change)
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	return a.stage(ctx, c, in.ByStage)
}

// setStages sets a stage of one action, or of all that have it.
func (a *handlers) setStages(ctx context.Context, c access.Caller, in *answer.Body[struct {
	StageSet
	Stage  registry.Stage  `json:"stage" minLength:"1" maxLength:"100" doc:"Such as Requested"`
	Action registry.Action `json:"action,omitempty" maxLength:"100" doc:"Only of this action"`
}],
) (*answer.Body[answer.List[record.QueueStage]], error) {
	change, err := in.Body.change(in.Body.Action)
	if err != nil {
		return nil, err
	}
	subject := ByStage{in.Body.Action, in.Body.Stage}.id()
	entry := registry.AuditEntry{Operation: "stages.set", SubjectType: "stage", SubjectID: strings.TrimPrefix(subject, "/"), Detail: map[string]any{"set": in.Body.StageSet}}
	set, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) ([]record.QueueStage, error) {
		return a.Registry.SetStage(ctx, in.Body.Stage, change)
	})
	return answer.All(set), err
}
