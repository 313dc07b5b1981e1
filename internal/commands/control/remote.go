package control

import (
	"context"
	"net/http"
	"net/url"

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
func pauseRemotely(ctx context.Context, s *remote.Server, verb string, stage registry.Stage, reason string) (list []registry.StagePause, err error) {
	body := map[string]string{"reason": reason}
	if verb == "resume" {
		body = map[string]string{}
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
