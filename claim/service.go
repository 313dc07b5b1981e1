package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/fault"
)

// ServiceHold is how a service stands for all processes.
type ServiceHold struct {
	Service  string
	Held     bool
	ByPerson bool      // and not because most workers see it fail
	Released time.Time // by a person, the last time; zero if it never was
	Place    string    // what most live workers know as the service; "" if they report nothing
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
	Place     string        // what the process knows as the service, such as the bucket of a target
	Refusal   *fault.Error  // of a request that it takes from nobody, seen for the first time; nil: none
}

// ServiceState is how a process sees a service.
type ServiceState string

// The states.
const (
	ServiceOK      ServiceState = "ok"
	ServiceFailing ServiceState = "failing" // nothing that needs it is claimed
	ServiceTrying  ServiceState = "trying"  // it answered a probe; one item at a time is claimed
)

func serviceHold(row pgx.CollectableRow) (h ServiceHold, err error) {
	var scopes []byte
	if err := row.Scan(&h.Service, &h.Held, &h.ByPerson, &h.Released, &scopes, &h.Place); err != nil {
		return h, err
	}
	return h, json.Unmarshal(scopes, &h.Scopes)
}

// ruleStore reads what the database has claims go by.
type ruleStore interface {
	rules(ctx context.Context) (rules, error)
}

// rules are what the database has claims go by.
type rules struct {
	stages []stages.Settings
	bands  []stages.Band
	holds  []ServiceHold // services that are held for all, and those that a person has released
}

func (p *postgres) rules(ctx context.Context) (r rules, err error) {
	batch := &pgx.Batch{}
	batch.Queue(stageSettingsSQL).Query(func(rows pgx.Rows) (err error) {
		type row struct {
			stages.Settings

			Bands    []int16
			MinSizes []int64
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
		r = rules{}
		for _, one := range list {
			r.stages = append(r.stages, one.Settings)
			r.bands = r.bands[:0]
			for i, band := range one.Bands {
				r.bands = append(r.bands, stages.Band{Band: band, MinSize: one.MinSizes[i]})
			}
		}
		return err
	})
	batch.Queue(servicesSQL).Query(func(rows pgx.Rows) (err error) {
		r.holds, err = pgx.CollectRows(rows, serviceHold)
		return err
	})
	if err := p.upkeep.SendBatch(ctx, batch).Close(); err != nil {
		return r, fmt.Errorf("read the settings of stages, the size bands and the services that are held: %w", err)
	}
	return r, nil
}
