package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
)

// stagePath is the path of a stage of an action, or of something about it.
func stagePath(of registry.Action, stage registry.Stage, what string) string {
	return "stages/" + url.PathEscape(string(of)) + "/" + url.PathEscape(string(stage)) + what
}

// actionsOf are the actions that have a stage.
func actionsOf(ctx context.Context, s *remote.Server, stage registry.Stage) (actions []registry.Action, err error) {
	if stage == registry.FixityStage {
		return []registry.Action{registry.Action(registry.FixityStage)}, nil
	}
	list, err := remote.All[registry.QueueStage](ctx, s, "stages")
	for _, q := range list {
		if q.Stage == stage {
			actions = append(actions, q.Action)
		}
	}
	return actions, err
}

// pauseRemotely has a server pause a stage of all actions, or resume it; "" is all stages.
func pauseRemotely(ctx context.Context, s *remote.Server, verb string, stage registry.Stage, f *stageFlags) (list []registry.StagePause, err error) {
	body := map[string]any{}
	switch {
	case verb == "pause":
		body["reason"] = f.reason
	case f.pause > 0:
		body["pause"] = f.pause
	}
	paths := []string{"stages/" + verb}
	if stage != "" {
		actions, err := actionsOf(ctx, s, stage)
		if err != nil {
			return nil, err
		}
		paths = nil
		for _, of := range actions {
			paths = append(paths, stagePath(of, stage, "/"+verb))
		}
	}
	for _, path := range paths {
		changed, err := remote.Send[struct{ Items []registry.StagePause }](ctx, s, http.MethodPost, path, body)
		if err != nil {
			return list, err
		}
		list = append(list, changed.Items...)
	}
	return list, nil
}

// setRemotely has a server set a stage of one action, or of all that have it.
func setRemotely(ctx context.Context, cmd *cobra.Command, s *remote.Server, name registry.Stage, c registry.StageChange, asJSON bool) error {
	stage, err := values.Stage(ctx, "the stage", name)
	if err != nil {
		return err
	}
	actions := []registry.Action{c.Action}
	if c.Action == "" {
		if actions, err = actionsOf(ctx, s, stage); err != nil {
			return err
		}
	}
	list := []registry.QueueStage{}
	for _, of := range actions {
		var changed registry.QueueStage
		if _, err := s.Do(ctx, client.Call{Method: http.MethodPatch, Path: stagePath(of, stage, ""), Body: settingsOf(c)}, &changed); err != nil {
			return err
		}
		list = append(list, changed)
	}
	if len(list) == 0 {
		return noSettings(stage)
	}
	return cli.Print(cmd, asJSON, list, printStages)
}

// servicesRemotely has a server list services, or do to one what the command is called.
func servicesRemotely(ctx context.Context, s *remote.Server, cmd *cobra.Command) ([]registry.Service, error) {
	if cmd.Name() != "services" {
		body := map[string]string{}
		if reason := cmd.Flags().Lookup("reason"); reason != nil {
			body["reason"] = reason.Value.String()
		}
		v, err := remote.Send[struct{ Items []registry.Service }](ctx, s, http.MethodPost, "services/"+url.PathEscape(cmd.Flags().Arg(0))+"/"+cmd.Name(), body)
		return v.Items, err
	}
	list, err := remote.All[registry.Service](ctx, s, "services")
	if failing, _ := cmd.Flags().GetBool("failing"); failing {
		list = slices.DeleteFunc(list, func(v registry.Service) bool { return v.State == "ok" })
	}
	return list, err
}

// addRemotely has a server add a stage.
func addRemotely(ctx context.Context, s *remote.Server, n registry.NewStage) (registry.QueueStage, error) {
	body := map[string]any{"name": n.Name, "after": n.After, "topic": n.Topic, "max_attempts": n.MaxAttempts, "lease_seconds": int(n.Lease.Seconds()), "timeout_seconds": int(n.Timeout.Seconds())}
	if n.Heartbeat > 0 {
		body["heartbeat_seconds"] = int(n.Heartbeat.Seconds())
	}
	return remote.Send[registry.QueueStage](ctx, s, http.MethodPost, "stages", body)
}
