// Package values has the values that flags and arguments of several command groups
// take: stages, statuses and actions.
package values

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
)

// Stage spells the name of a stage as the registry does; also are other names that are
// allowed. It connects to the registry only if the stage is not one of Farol's own.
// flag is what the error names.
func Stage(ctx context.Context, flag string, value registry.Stage, also ...registry.Stage) (registry.Stage, error) {
	name, err := cli.OneOf(flag, value, append(Stages(), also...))
	if err == nil {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s := remote.From(ctx); s != nil {
		list, err := remote.All[registry.QueueStage](ctx, s, "stages")
		if err != nil {
			return "", err
		}
		names := append([]registry.Stage{registry.Resolve}, also...)
		for _, q := range list {
			names = append(names, q.Stage)
		}
		return cli.OneOf(flag, value, names)
	}
	s, noRegistry := connect.Registry(ctx, "stage")
	if noRegistry != nil {
		return "", err // which is all that can be said
	}
	defer s.Close()
	return StageFrom(ctx, s.Registry, flag, value, also...)
}

// StageFrom is [Stage] for a command that is connected. Its error lists the live stages.
func StageFrom(ctx context.Context, r *registry.Registry, flag string, value registry.Stage, also ...registry.Stage) (registry.Stage, error) {
	names, err := r.StageNames(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if strings.EqualFold(string(name), string(value)) {
			return name, nil
		}
	}
	stages, err := r.Stages(ctx)
	if err != nil {
		return "", err
	}
	var live []registry.Stage
	for _, s := range stages {
		if !slices.Contains(live, s.Stage) {
			live = append(live, s.Stage)
		}
	}
	return cli.OneOf(flag, value, append(append(live, registry.Resolve), also...))
}

// CheckInstitution refuses an identifier that no institution has; "" is none.
func CheckInstitution(ctx context.Context, r *registry.Registry, identifier string) error {
	if identifier == "" {
		return nil
	}
	_, err := r.Institution(ctx, identifier)
	if errors.Is(err, registry.ErrNotFound) {
		return noInstitution(identifier)
	}
	return err
}

func noInstitution(identifier string) error {
	return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no institution %q", identifier), Next: "`farol institution list` lists the institutions"}
}

// InstitutionThere is [CheckInstitution] of the server that a command works through, if it
// does, and if the server shows institutions to the caller.
func InstitutionThere(ctx context.Context, identifier string) error {
	s := remote.From(ctx)
	if s == nil || identifier == "" {
		return nil
	}
	list, err := remote.List[registry.Institution](ctx, s, "institutions", nil, math.MaxInt)
	switch {
	case remote.NotAllowed(err):
		return nil
	case err != nil:
		return err
	case !slices.ContainsFunc(list, func(i registry.Institution) bool { return i.Identifier == identifier }):
		return noInstitution(identifier)
	}
	return nil
}

// Statuses lists the statuses of work items.
func Statuses() []registry.Status {
	return []registry.Status{registry.Pending, registry.Started, registry.Success, registry.Failed, registry.Cancelled, registry.Suspended}
}

// Stages are Farol's own that live items can be in: the ingest stages in their
// order, and those of the other actions. [Stage] knows those that were added too.
func Stages() []registry.Stage {
	var names []registry.Stage
	for _, w := range settings.IngestWorkers() {
		names = append(names, w.Stage)
	}
	return append(names, registry.Requested, registry.Resolve)
}

// ToHelp describes the flag --to of all commands that have it.
func ToHelp() string {
	return "an earlier stage to begin again at: " + strings.Join(cli.Strings(Stages()), ", ")
}

// StageHelp describes the flag --stage of all commands that have it.
func StageHelp() string {
	return "only those in this stage: " + strings.Join(cli.Strings(Stages()), ", ")
}

// Actions lists the actions of work items.
func Actions() (names []registry.Action) {
	for _, w := range settings.OldWorkers() {
		if w.Action != "" && !slices.Contains(names, w.Action) {
			names = append(names, w.Action)
		}
	}
	return names
}
