package queue

import (
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/api/queue"
	"github.com/farol-preservation/farol/web/console/frame"
)

// jobRow is a recurring job, and how it stands.
type jobRow struct {
	record.Schedule

	State string
}

// States of a job.
const (
	jobPaused  = "paused"
	jobRunning = "running"
	jobLate    = "late"
	jobFailed  = "failed"
	jobNever   = "never ran"
	jobGood    = "in time"
)

// unnoticed is how late a job may be without anything being wrong, as for farol schedule list.
const unnoticed = time.Minute

// jobState says how a job stands.
func jobState(s record.Schedule) string {
	switch {
	case s.Paused:
		return jobPaused
	case s.Running:
		return jobRunning
	case s.Late > unnoticed:
		return jobLate
	case s.Error != "":
		return jobFailed
	case s.EndedAt == nil:
		return jobNever
	}
	return jobGood
}

func loadSchedules(v *frame.Visit) (any, error) {
	found, err := frame.Get[frame.List[record.Schedule]](v, "schedules", nil)
	if err != nil {
		return nil, err
	}
	var rows []jobRow
	for _, s := range found.Items {
		rows = append(rows, jobRow{s, jobState(s)})
	}
	return rows, nil
}

// servicesPage are the services that workers need.
type servicesPage struct {
	Services []record.Service
	Bad      int // that are held or fail
	Stores   []queue.StoreView
}

func loadServices(v *frame.Visit) (any, error) {
	found, err := frame.Get[frame.List[record.Service]](v, "services", nil)
	if err != nil {
		return nil, err
	}
	stores, err := frame.Get[frame.List[queue.StoreView]](v, "stores", nil)
	if err != nil {
		return nil, err
	}
	d := servicesPage{Services: found.Items, Stores: stores.Items}
	for _, s := range found.Items {
		if s.State != "ok" {
			d.Bad++
		}
	}
	return d, nil
}

// loadMirror compares the queue with what nsqd shows of it.
func loadMirror(v *frame.Visit) (any, error) {
	return frame.Get[record.MirrorView](v, "mirror", nil)
}
