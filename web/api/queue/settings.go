package queue

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// settingsAnswer are all settings, with their version.
type settingsAnswer struct {
	ETag string `header:"ETag"`
	Body record.Settings
}

type storagePatch struct {
	answer.Condition
	Name string `path:"name" maxLength:"100" doc:"Storage option"`
	Body struct {
		Retention int `json:"retention_days" minimum:"0" maximum:"36500" doc:"Days before a file may be deleted"`
	}
}

type requestsPatch struct {
	answer.Condition
	Body struct {
		Cap  *string  `json:"retrieval_cap_usd,omitempty" pattern:"^[0-9]{1,12}([.][0-9]{1,2})?$" doc:"US dollars above which a person has to approve a retrieval, such as 100.00"`
		Wait *float64 `json:"deletion_wait_hours,omitempty" minimum:"0" maximum:"2160" doc:"Hours that an approved deletion waits before anything is removed, where an institution has no own time"`
	}
}

type pricesPatch struct {
	answer.Condition
	Class string `path:"storage_class" maxLength:"100"`
	Tier  string `path:"tier" maxLength:"100"`
	Body  struct {
		PerGiB      *string  `json:"per_gib_usd,omitempty" pattern:"^[0-9]{1,6}([.][0-9]{1,6})?$" doc:"US dollars for 2^30 bytes"`
		PerThousand *string  `json:"per_1000_requests_usd,omitempty" pattern:"^[0-9]{1,6}([.][0-9]{1,6})?$" doc:"US dollars for 1000 objects"`
		Takes       *float64 `json:"takes_seconds,omitempty" minimum:"1" maximum:"31536000" doc:"Longest time that the provider states"`
		Poll        *float64 `json:"poll_seconds,omitempty" minimum:"1" maximum:"31536000" doc:"Time between two polls of the provider"`
	}
}

// settings are those that the database has. What processes are started with is not here.
func (a *handlers) settings(t *ops.API) {
	ops.Register(t, answer.Reads("settings.show", "/api/v1/settings", "Show settings of retention, approvals and prices of retrievals", "", permission.SettingsRead),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*settingsAnswer, error) {
			return a.allSettings(ctx)
		})
	ops.Register(t, changesSettings("settings.set_storage", "/api/v1/settings/storage-options/{name}", "Change how long files of a storage option must be kept"),
		func(ctx context.Context, c access.Caller, in *storagePatch) (*settingsAnswer, error) {
			return a.set(ctx, c, "settings.set_storage", in.Name, in.Condition, in.Body, func(ctx context.Context) error {
				return requests.In(a.Registry).SetRetention(ctx, in.Name, in.Body.Retention)
			})
		})
	ops.Register(t, changesSettings("settings.set_requests", "/api/v1/settings/requests", "Change the price above which a retrieval is approved, and how long approved deletions wait"),
		func(ctx context.Context, c access.Caller, in *requestsPatch) (*settingsAnswer, error) {
			if in.Body.Cap == nil && in.Body.Wait == nil {
				return nil, answer.NothingToSet("retrieval_cap_usd or deletion_wait_hours")
			}
			return a.set(ctx, c, "settings.set_requests", "requests", in.Condition, in.Body, func(ctx context.Context) error {
				return requests.In(a.Registry).SetRequests(ctx, in.Body.Cap, in.Body.Wait)
			})
		})
	ops.Register(t, changesSettings("settings.set_prices", "/api/v1/settings/retrieval-prices/{storage_class}/{tier}", "Change what a retrieval costs, and how long it takes"),
		func(ctx context.Context, c access.Caller, in *pricesPatch) (*settingsAnswer, error) {
			b := in.Body
			return a.set(ctx, c, "settings.set_prices", in.Class+" "+in.Tier, in.Condition, b, func(ctx context.Context) error {
				return requests.In(a.Registry).SetPrice(ctx, in.Class, in.Tier,
					requests.PriceChanges{PerGiB: b.PerGiB, PerThousand: b.PerThousand, Takes: seconds(b.Takes), Poll: seconds(b.Poll)})
			})
		})
}

func changesSettings(id, path, summary string) ops.Operation {
	return ops.Operation{
		ID: id, Method: http.MethodPatch, Path: path, Summary: summary, Access: ops.Holders, Needs: permission.SettingsWrite, Fresh: true, Audit: true,
		About: "If-Match takes the ETag of all settings. Requests that were made before keep the prices that they were quoted, and approved deletions the time at which they begin.",
	}
}

func seconds(n *float64) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n * float64(time.Second))
	return &d
}

func (a *handlers) allSettings(ctx context.Context) (*settingsAnswer, error) {
	s, err := requests.In(a.Registry).Settings(ctx)
	return &settingsAnswer{`"` + s.Version() + `"`, s}, err
}

// set changes a setting, unless the settings are others than those that the change was
// decided on.
func (a *handlers) set(ctx context.Context, c access.Caller, operation, subject string, m answer.Condition, to any, do func(context.Context) error) (*settingsAnswer, error) {
	version := strings.Trim(strings.TrimSpace(m.IfMatch), `"`)
	if version == "*" {
		version = ""
	}
	entry := registry.AuditEntry{Operation: operation, SubjectType: "setting", SubjectID: subject, Detail: map[string]any{"set": to}}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*settingsAnswer, error) {
		if err := requests.In(a.Registry).LockSettings(ctx, version); err != nil {
			return nil, err
		}
		if err := do(ctx); err != nil {
			return nil, err
		}
		return a.allSettings(ctx)
	})
}
