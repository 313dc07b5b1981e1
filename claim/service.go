package claim

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

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
