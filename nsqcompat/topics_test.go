package nsqcompat

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Dashboards are set up for topics that may get no message for weeks, and compare
// the names: there is one channel for each, and no other.
func TestTopicsAndChannelsAreThereBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NewNSQ(t)
	m, _ := start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, NSQDHTTPAddr: nsqd.HTTPAddr})
	want := map[string][]string{}
	for _, topic := range []string{
		"ingest01_prefetch", "ingest02_bag_validation", "ingest03_reingest_check", "ingest04_staging",
		"ingest05_format_identification", "ingest06_storage", "ingest07_storage_validation", "ingest08_record",
		"ingest09_cleanup", "delete_item", "restore_file", "restore_object", "restore_glacier", "export_records", "fixity_check",
	} {
		want[topic] = []string{topic + "_worker_chan"}
	}
	got := func() map[string][]string {
		stats := must.Get(at(nsqd).stats(t.Context()))(t)
		there := map[string][]string{}
		for _, topic := range stats.Topics {
			for _, channel := range topic.Channels {
				there[topic.Name] = append(there[topic.Name], channel.Name)
			}
		}
		return there
	}
	testenv.Eventually(t, "the link", func() bool { return len(m.Figures()) == 15 })
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Error("topics and channels:", diff)
	}
	if err := at(nsqd).post(t.Context(), "/topic/create", nil); err == nil {
		t.Error("post does not report an answer that is not 200")
	}
}
