package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/storage"
)

// Need is a set of services that a step cannot do without.
type Need int

// What a step may need.
const (
	NeedRedis Need = 1 << iota
	NeedStaging
	NeedReceiving // of the item's institution
	NeedRestore   // likewise
	NeedTargets   // each that the storage option names
	NeedOneTarget // any of these
	NeedScanner
	NeedIdentifier
	NeedDisk
	NeedKept // the bucket for the interim metadata
)

// probe asks a service whether it does its work.
type probe func(ctx context.Context) error

// needing lists the steps that need something.
func needing(steps []Step, n Need) (names []string) {
	for _, s := range steps {
		if s.Needs&n != 0 {
			names = append(names, s.Name())
		}
	}
	return names
}

// servicesOf are the services that steps need, but for the buckets of institutions,
// which are known when an item comes to them.
func servicesOf(d Deps, steps []Step) []*breaker {
	var list []*breaker
	add := func(service string, ofProcess bool, p probe, scopes ...claim.Scope) {
		scopes = slices.DeleteFunc(scopes, func(s claim.Scope) bool { return len(s.Steps) == 0 })
		if len(scopes) > 0 {
			list = append(list, &breaker{service: service, ofProcess: ofProcess, probe: p, scopes: scopes, state: claim.ServiceOK, unsaid: true})
		}
	}
	all := func(n Need) claim.Scope { return claim.Scope{Steps: needing(steps, n)} }
	if d.Progress != nil {
		add(fault.Redis, false, d.Progress.Probe, all(NeedRedis))
	}
	if d.Staging != nil {
		add(d.Staging.Service(), false, d.Staging.Probe, all(NeedStaging))
	}
	if d.Kept != nil {
		add(d.Kept.Service(), false, d.Kept.Probe, all(NeedKept))
	}
	if d.Viruses != nil {
		add(fault.Scanner, false, d.scannerProbe, all(NeedScanner))
	}
	add(fault.Identifier, true, d.identifierProbe, all(NeedIdentifier))
	add(fault.Disk, true, diskProbe, all(NeedDisk))
	for _, t := range storage.Targets() {
		b := d.Targets[t.Name]
		if b == nil {
			continue
		}
		scopes := []claim.Scope{{Steps: needing(steps, NeedTargets), StorageOptions: []string{t.Option}}}
		if len(storage.TargetsOf(t.Option)) == 1 {
			scopes = append(scopes, claim.Scope{Steps: needing(steps, NeedOneTarget), StorageOptions: []string{t.Option}})
		}
		add(b.Service(), false, b.Probe, scopes...)
		if n := len(list); n > 0 && list[n-1].service == b.Service() {
			list[n-1].place = b.Name()
		}
	}
	if g := unconfigured(d, steps); g != nil {
		list = append(list, g)
	}
	return list
}

// unconfigured has tripped for good, for the storage options that name a target which
// this process lacks: other workers may have it.
func unconfigured(d Deps, steps []Step) *breaker {
	if d.Targets == nil {
		return nil
	}
	var options, targets []string
	for _, t := range storage.Targets() {
		if d.Targets[t.Name] == nil {
			targets = append(targets, t.Name)
			if !slices.Contains(options, t.Option) {
				options = append(options, t.Option)
			}
		}
	}
	names := needing(steps, NeedTargets)
	if len(options) == 0 || len(names) == 0 {
		return nil
	}
	return &breaker{
		service: fault.Settings, ofProcess: true, state: claim.ServiceFailing, unsaid: true,
		scopes: []claim.Scope{{Steps: names, StorageOptions: options}},
		cause: &fault.Error{
			Service: fault.Settings, Kind: fault.Missing, Said: "no target " + strings.Join(targets, ", "),
			Err: fmt.Errorf("this worker is not configured for the storage targets %s", strings.Join(targets, ", ")),
		},
	}
}

// bucketOf is the breaker of a bucket that belongs to an item's institution.
func bucketOf(d Deps, steps []Step, item claim.Item, service string) *breaker {
	name := strings.TrimPrefix(service, fault.Bucket(""))
	n := NeedRestore
	if slices.ContainsFunc(steps, func(s Step) bool { return s.Action == item.Action && s.Needs&NeedReceiving != 0 }) {
		n = NeedReceiving
	}
	g := &breaker{
		service: service, state: claim.ServiceOK, unsaid: true,
		scopes: []claim.Scope{{Steps: needing(steps, n), Institutions: []string{item.Institution}}},
	}
	if d.Receiving != nil {
		g.probe = func(ctx context.Context) error {
			b, err := d.Receiving(name)
			if err != nil {
				return err
			}
			return b.Probe(ctx)
		}
	}
	return g
}

func (d Deps) scannerProbe(ctx context.Context) error {
	_, err := d.Viruses.Version(ctx)
	return cause.Scanner(ctx, err)
}

func (d Deps) identifierProbe(ctx context.Context) error {
	if d.Formats == nil {
		return nil
	}
	_, err := d.Formats.Identify(ctx, "probe.txt", 5, strings.NewReader("probe"))
	return cause.Identifier(ctx, err)
}

// diskProbe tells whether TMPDIR has space for the lists of a bag.
func diskProbe(context.Context) (err error) {
	f, err := os.CreateTemp("", "farol-probe-*")
	if err != nil {
		return fmt.Errorf("spool: %w", cause.Host(err))
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("spool: %w", cause.Host(err))
	}
	return nil
}
