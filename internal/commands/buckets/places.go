package buckets

import (
	"context"
	"math"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/storage"
)

// Shared are the names of the buckets that belong to no target and no institution.
func Shared() []string { return []string{"staging", "metadata", "quarantine"} }

// A place is a bucket that is to be there.
type place struct {
	names   []string // by which --only chooses it; the first says what the bucket is for
	target  storage.Target
	setting string // that names the bucket
	service string // that leads to the service
	key     string // that say by which credentials it is reached
	kept    bool   // it is a preservation target's, and so may keep versions and have a lock
	uploads bool   // browsers upload to it
	err     error  // why it is not known
}

// ofSettings are the buckets that the settings name.
func ofSettings(c settings.Buckets) (list []place) {
	for i, name := range []string{c.Storage.Staging, c.Storage.Keep, c.Quarantine} {
		if name != "" {
			setting := []string{"FAROL_STAGING_BUCKET", "FAROL_KEEP_METADATA", "FAROL_QUARANTINE_BUCKET"}[i]
			list = append(list, shared(c.Storage.S3, name, setting, Shared()[i]))
		}
	}
	for _, t := range c.Storage.Targets {
		prefix := settings.TargetPrefix(t.Name)
		p := shared(c.Storage.S3, t.Bucket, prefix+"BUCKET", t.Name)
		p.target, p.kept = t, true
		if t.Endpoint != c.Storage.Endpoint {
			p.service = prefix + "ENDPOINT"
		}
		p.key = c.Storage.KeyOf(t)
		list = append(list, p)
	}
	return list
}

// shared is a bucket of the shared service.
func shared(c settings.S3, name, setting string, names ...string) place {
	return place{names: names, target: c.Target(name), setting: setting, service: "FAROL_S3_ENDPOINT", key: c.KeyOf(c.Target(name))}
}

// ofInstitutions are the buckets of all active institutions, or the reason why they are not
// known.
func ofInstitutions(cmd *cobra.Command, c settings.Buckets) (list []place) {
	err := remote.Do(cmd, func(ctx context.Context, s *remote.Server) error {
		institutions, err := remote.List[record.Institution](ctx, s, "institutions", url.Values{"state": {"A"}}, math.MaxInt)
		for _, in := range institutions {
			receiving := shared(c.Storage.S3, in.ReceivingBucket, "institutions.receiving_bucket", "deposits of "+in.Identifier, in.Identifier)
			receiving.uploads = true
			list = append(list, receiving, shared(c.Storage.S3, in.RestoreBucket, "institutions.restore_bucket", "restorations of "+in.Identifier, in.Identifier))
		}
		return err
	})
	if err != nil {
		list = append(list, place{names: []string{"institutions"}, setting: "FAROL_DATABASE_URL", err: err})
	}
	return list
}
