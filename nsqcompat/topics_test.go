package nsqcompat

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/testenv"
)

// Dashboards are set up for topics that may get no message for weeks.
func TestTopicsAndChannelsAreThereBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NewNSQ(t)
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, NSQDHTTPAddr: nsqd.HTTPAddr})
	want := map[string]bool{}
	for _, topic := range []string{
		"ingest01_prefetch", "ingest02_bag_validation", "ingest03_reingest_check", "ingest04_staging",
		"ingest05_format_identification", "ingest06_storage", "ingest07_storage_validation", "ingest08_record",
		"ingest09_cleanup", "delete_item", "restore_file", "restore_object", "restore_glacier", "fixity_check",
	} {
		want[topic+"_worker_chan"] = true
	}
	eventually(t, "all channels", func() bool {
		stats, err := at(nsqd).stats(t.Context())
		there := map[string]bool{}
		for _, topic := range stats.Topics {
			if _, ok := topic.channel(topic.Name + channelSuffix); ok {
				there[topic.Name+channelSuffix] = true
			}
		}
		return err == nil && cmp.Equal(want, there)
	})
	if err := at(nsqd).post(t.Context(), "/topic/create", nil); err == nil {
		t.Error("post does not tell of an answer that is not 200")
	}
}
