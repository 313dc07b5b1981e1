package settings

import (
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// level is how much of a resource a worker uses.
type level int

const (
	low level = iota
	medium
	high
)

// resources say what the work of a stage leans on. How it is treated unless
// someone says otherwise follows from that.
type resources struct{ S3, Redis, Registry, CPU, Memory level }

// oldWorker is a program of the predecessor, and the stage that does its work.
type oldWorker struct {
	names  []string // which its settings begin with; the first that is set counts
	Action registry.Action
	Stage  registry.Stage // "": there is none
	uses   resources
}

// treatment is how a stage is treated by default. All but Buffer are the rows that
// migrations write into stage_settings, where administrators change them.
type treatment struct {
	Buffer      int // items in one claim, at most
	MaxAttempts int
	Cap         int // of items at once in all processes; 0: any number

	// Of a worker that cannot heartbeat: how long the stage may take, and how long
	// silence means death, which is three times that.
	UnrenewedTimeout, UnrenewedLease time.Duration
}

// byDefault derives it: a stage that moves bytes to and from S3 takes few items at
// once and has a quarter of an hour; one that writes many records must not flood
// the registry, and is tried more often.
func (r resources) byDefault() treatment {
	t := treatment{Buffer: 20, MaxAttempts: 3, UnrenewedTimeout: 20 * time.Second}
	if slices.Max([]level{r.S3, r.Redis, r.Registry, r.CPU, r.Memory}) > low {
		t.UnrenewedTimeout = 3 * time.Minute
	}
	if r.S3 == high {
		t.Buffer, t.UnrenewedTimeout = 4, 15*time.Minute
	}
	if r.Registry == high {
		t.MaxAttempts, t.Cap = 5, 8
	}
	t.UnrenewedLease = 3 * t.UnrenewedTimeout
	return t
}

// OldWorkers are the predecessor's workers with their settings: those of an
// ingest in the order of their stages, then the others.
func OldWorkers() []oldWorker {
	return []oldWorker{
		{[]string{"INGEST_PRE_FETCH"}, registry.Ingest, registry.Receive, resources{S3: high, Redis: medium, CPU: high, Memory: medium}},
		{[]string{"INGEST_VALIDATOR"}, registry.Ingest, registry.Validate, resources{CPU: medium, Memory: medium}},
		{[]string{"REINGEST_MANAGER"}, registry.Ingest, registry.ReingestCheck, resources{}},
		{
			[]string{"INGEST_STAGING_UPLOADER", "STAGING_UPLOADER"},
			registry.Ingest, registry.CopyToStaging,
			resources{S3: high, Redis: high, CPU: medium, Memory: medium},
		},
		{[]string{"INGEST_FORMAT_IDENTIFIER"}, registry.Ingest, registry.FormatIdentification, resources{S3: high, Redis: medium, CPU: high, Memory: high}},
		{[]string{"INGEST_PRESERVATION_UPLOADER"}, registry.Ingest, registry.Store, resources{S3: high, Redis: medium, CPU: medium, Memory: medium}},
		{[]string{"INGEST_PRESERVATION_VERIFIER"}, registry.Ingest, registry.StorageValidation, resources{S3: medium, Redis: medium, Memory: medium}},
		{[]string{"INGEST_RECORDER"}, registry.Ingest, registry.Record, resources{Registry: high, Memory: medium}},
		{[]string{"INGEST_CLEANUP"}, registry.Ingest, registry.Cleanup, resources{}},
		{[]string{"APT_DELETE"}, registry.Delete, registry.Requested, resources{S3: medium, Registry: medium}},
		{[]string{"FILE_RESTORER"}, registry.RestoreFile, registry.Requested, resources{S3: high}},
		{[]string{"BAG_RESTORER"}, registry.RestoreObject, registry.Requested, resources{S3: high, CPU: medium}},
		{[]string{"GLACIER_RESTORER"}, registry.GlacierRestore, registry.Requested, resources{}},
		{[]string{"EXPORTER"}, registry.ExportRecords, registry.Requested, resources{}},
		{[]string{"APT_FIXITY"}, "", "", resources{S3: high, Registry: medium, CPU: high}},
	}
}

// step is what pools and settings call its work; "" if no pool does it.
func (w oldWorker) step() string {
	if w.Action == "" {
		return ""
	}
	return stages.StepOf(w.Action, w.Stage)
}

// oldSuffixes end the names of the settings of a worker.
var oldSuffixes = [...]string{"_WORKERS", "_BUFFER_SIZE", "_MAX_ATTEMPTS", "_TIMEOUT", "_LEASE"} //nolint:gochecknoglobals // a constant, but for Go

// IngestWorkers are those of the stages of an ingest.
func IngestWorkers() []oldWorker {
	return slices.DeleteFunc(OldWorkers(), func(w oldWorker) bool { return w.Action != registry.Ingest })
}

// readWorkers reads the settings of the predecessor's workers, by step. What has no
// effect must be right all the same.
func (s *reader) readWorkers(c *Worker) {
	c.StageSlots, c.ClaimCeiling, c.MaxAttempts = map[string]int{}, map[string]int{}, map[string]int{}
	c.Timeouts, c.Leases = map[string]time.Duration{}, map[string]time.Duration{}
	for _, w := range OldWorkers() {
		works := w.step() != ""
		if works {
			c.ClaimCeiling[w.step()] = w.uses.byDefault().Buffer
		}
		counts := map[string]map[string]int{"_WORKERS": c.StageSlots, "_BUFFER_SIZE": c.ClaimCeiling, "_MAX_ATTEMPTS": c.MaxAttempts}
		if !works {
			counts = nil // they are in fixityConfig
		}
		for suffix, into := range counts {
			readOld(c, w, suffix, into, s.number)
		}
		for suffix, into := range map[string]map[string]time.Duration{"_TIMEOUT": c.Timeouts, "_LEASE": c.Leases} {
			readOld(c, w, suffix, into, s.duration)
		}
		if lease, ok := c.Leases[w.step()]; ok && works && lease < 3*c.Heartbeat {
			s.wrong(s.nameOf(w, "_LEASE"), "is "+lease.String()+"; it must be at least three times FAROL_HEARTBEAT, which is "+c.Heartbeat.String())
		}
	}
	slices.Sort(c.Idle)
}

// readOld reads one setting of a worker, under whichever of its names it has.
func readOld[T comparable](c *Worker, w oldWorker, suffix string, into map[string]T, read func(name string) (T, bool)) {
	counts := false
	for _, name := range w.names {
		v, ok := read(name + suffix)
		switch {
		case !ok:
		case w.step() == "", counts && v != into[w.step()]:
			c.Idle = append(c.Idle, name+suffix)
		default:
			into[w.step()], counts = v, true
		}
	}
}

// nameOf is the name under which a setting of a worker is set.
func (s *reader) nameOf(w oldWorker, suffix string) string {
	for _, name := range w.names {
		if s.isSet(name + suffix) {
			return name + suffix
		}
	}
	return w.names[0] + suffix
}

// Blamed names the settings because of which an engine does not start: a process's
// own go before those in stage_settings.
func (c Worker) Blamed(wrong *stages.SettingError) []string {
	names := []string{wrong.Setting + " in stage_settings"}
	switch _, own := c.Leases[wrong.Stage]; {
	case own:
		for _, w := range OldWorkers() {
			if w.step() == wrong.Stage {
				names = nil
				for _, name := range w.names {
					names = append(names, name+"_LEASE")
				}
			}
		}
	case c.Lease > 0:
		names = []string{"FAROL_LEASE"}
	}
	if c.Heartbeat > 0 {
		names = append(names, "FAROL_HEARTBEAT")
	}
	return names
}
