package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/fault"
)

// ServiceHold is how a service stands for all processes.
type ServiceHold struct {
	Service  string
	Held     bool
	ByPerson bool      // and not because most workers see it fail
	Released time.Time // by a person, the last time; zero if it never was
	Place    string    // what most live workers take for the service; "" if they say nothing
	Scopes   []Scope
}

// ServiceReport is how a process sees a service.
type ServiceReport struct {
	Service   string
	State     ServiceState
	Code      string // see [fault.Error]
	Said      string
	Detail    string
	NextProbe time.Duration // until then; 0: none is planned
	OfProcess bool          // each process has its own
	Scopes    []Scope       // the work that needs it
	Place     string        // what the process takes for the service, such as the bucket of a target
}

// ServiceState is how a process sees a service.
type ServiceState string

// The states.
const (
	ServiceOK      ServiceState = "ok"
	ServiceFailing ServiceState = "failing" // nothing that needs it is claimed
	ServiceTrying  ServiceState = "trying"  // it answered a probe; one item at a time is claimed
)

// ServiceHolds lists the known services, as this process has read them last: some
// seconds ago at most.
func (e *Engine) ServiceHolds() []ServiceHold { return *e.services.Load() }

// Report writes how this process sees a service, for the others and for people.
func (e *Engine) Report(ctx context.Context, r ServiceReport) error {
	return e.store.reportService(ctx, e.self.worker, r)
}

// Wake makes all pools of this process look for work now.
func (e *Engine) Wake() { e.wake.ring() }

// Believe makes a [Doubt] the ending that it is about, if another process has come
// to the same, or this one before and there is no other to ask. Any other result,
// and a doubt that nobody can resolve now, is returned as it is.
func (e *Engine) Believe(ctx context.Context, item Item, result error) error {
	var doubt *ending
	if !errors.As(result, &doubt) || doubt.kind != endDoubt {
		return result
	}
	mine, others, more, err := e.store.witnesses(ctx, item, doubt.code, doubt.service, e.self.worker)
	switch {
	case err != nil:
		e.log.WarnContext(ctx, "cannot tell whether another worker saw the same; the item is held", "item", item.ID, "code", doubt.code, "err", err)
	case others || mine > 0 && !more:
		return doubt.err
	case !more:
		alone := *doubt
		alone.service = ""
		return &alone
	}
	return result
}

func (p *postgres) witnesses(ctx context.Context, item Item, code, service, worker string) (mine int, others, more bool, err error) {
	err = p.hot.QueryRow(ctx, witnessesSQL,
		item.ID, item.Entered, item.Token, code, worker, service).Scan(&mine, &others, &more)
	if err != nil {
		return 0, false, false, fmt.Errorf("ask who else has seen %s of item %d: %w", code, item.ID, err)
	}
	return mine, others, more, nil
}

func serviceHold(row pgx.CollectableRow) (h ServiceHold, err error) {
	var scopes []byte
	if err := row.Scan(&h.Service, &h.Held, &h.ByPerson, &h.Released, &scopes, &h.Place); err != nil {
		return h, err
	}
	return h, json.Unmarshal(scopes, &h.Scopes)
}

func (p *postgres) reportService(ctx context.Context, worker string, r ServiceReport) error {
	scopes, err := json.Marshal(append([]Scope{}, r.Scopes...))
	if err != nil {
		return fmt.Errorf("describe the work that needs %s: %w", r.Service, err)
	}
	var next *time.Duration
	if r.NextProbe > 0 {
		next = &r.NextProbe
	}
	_, err = p.beat.Exec(ctx, `SELECT report_service($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		worker, r.Service, string(r.State), r.Code, readable(r.Said), readable(r.Detail), next, r.OfProcess, scopes, r.Place)
	if err != nil {
		return fmt.Errorf("report the service %s: %w", r.Service, err)
	}
	return nil
}

// databaseFault is the fault of an error that the database gave, or the way to it.
// Of an error to which a stage has given a code, only the database's own word
// counts: what failed on the way may have been another service.
func databaseFault(err error, coded *ending) *fault.Error {
	f := &fault.Error{Service: fault.Database, Err: err}
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	ok := true
	switch {
	case errors.As(err, &pg):
		f.Said = pg.Code + " " + pg.Message
		f.Kind, ok = fault.Postgres(pg.Code)
	case coded != nil:
		ok = false
	case errors.As(err, &connect), pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxClosed):
		f.Kind, f.Said = fault.Unavailable, "connection broken"
	default:
		f.Kind, f.Said, ok = fault.Network(err)
	}
	if !ok {
		return nil
	}
	return f
}
