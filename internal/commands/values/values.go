// Package values has the values that flags and arguments of several command groups
// take: stages, statuses and actions.
package values

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Stage spells the name of a stage as the registry does; also are other names that are
// allowed. It asks the registry only if the stage is not one of Farol's own. flag is what the
// error names.
func Stage(ctx context.Context, s *remote.Server, flag string, value record.Stage, also ...record.Stage) (record.Stage, error) {
	name, err := cli.OneOf(flag, value, append(Stages(), also...))
	if err == nil {
		return name, nil
	}
	list, err := remote.Get[struct {
		Items []record.QueueStage
		Names []record.Stage // of those that were removed, too
	}](ctx, s, "stages", nil)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(list.Names, func(name record.Stage) bool { return strings.EqualFold(string(name), string(value)) }); i >= 0 {
		return list.Names[i], nil
	}
	names := []record.Stage{}
	for _, q := range list.Items {
		if !slices.Contains(names, q.Stage) {
			names = append(names, q.Stage)
		}
	}
	return cli.OneOf(flag, value, append(append(names, registry.Resolve), also...))
}

// CheckInstitution refuses an identifier that no institution has, if the caller may know of
// others; "" is none.
func CheckInstitution(ctx context.Context, s *remote.Server, identifier string) error {
	if identifier == "" {
		return nil
	}
	list, err := remote.List[record.Institution](ctx, s, "institutions", nil, math.MaxInt)
	switch {
	case remote.NotAllowed(err):
		return nil
	case err != nil:
		return err
	case !slices.ContainsFunc(list, func(i record.Institution) bool { return i.Identifier == identifier }):
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no institution %q", identifier), Next: "`farol institution list` lists the institutions"}
	}
	return nil
}

// Statuses lists the statuses of work items.
func Statuses() []record.Status {
	return []record.Status{registry.Pending, registry.Started, registry.Success, registry.Failed, registry.Cancelled, registry.Suspended}
}

// Stages are Farol's own that live items can be in: the ingest stages in their
// order, and those of the other actions. [Stage] knows those that were added too.
func Stages() []record.Stage {
	var names []record.Stage
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
func Actions() (names []record.Action) {
	for _, w := range settings.OldWorkers() {
		if w.Action != "" && !slices.Contains(names, w.Action) {
			names = append(names, w.Action)
		}
	}
	return names
}

// Names are values as text.
func Names[S ~string](list func() []S) func() []string {
	return func() []string { return cli.Strings(list()) }
}
