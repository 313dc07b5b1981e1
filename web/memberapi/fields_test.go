package memberapi_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields are those of each record, as the predecessor had them: i is a whole number, s a
// text, t a time, b a truth and l a list.
var fields = map[string]string{
	"item": `id:i name:s etag:s institution_id:i institution_name:s institution_identifier:s intellectual_object_id:i object_identifier:s alt_identifier:s
		bag_group_identifier:s storage_option:s bagit_profile_identifier:s source_organization:s internal_sender_identifier:s generic_file_id:i
		generic_file_identifier:s bucket:s user:s note:s action:s stage:s status:s outcome:s bag_date:t date_processed:t retry:b node:s pid:i
		needs_admin_review:b queued_at:t size:i stage_started_at:t aptrust_approver:s inst_approver:s deletion_request_id:i created_at:t updated_at:t`,
	"object": `id:i title:s description:s identifier:s alt_identifier:s access:s bag_name:s institution_id:i created_at:t updated_at:t state:s etag:s
		bag_group_identifier:s storage_option:s bagit_profile_identifier:s source_organization:s internal_sender_identifier:s internal_sender_description:s
		institution_name:s institution_identifier:s institution_type:s institution_parent_id:i file_count:i size:i payload_file_count:i payload_size:i`,
	"file": `id:i file_format:s size:i identifier:s intellectual_object_id:i object_identifier:s access:s state:s last_fixity_check:t institution_id:i
		institution_name:s institution_identifier:s storage_option:s uuid:s mtime:t md5:s sha1:s sha256:s sha512:s created_at:t updated_at:t`,
	"whole file": `id:i file_format:s size:i identifier:s intellectual_object_id:i state:s last_fixity_check:t institution_id:i storage_option:s uuid:s
		created_at:t updated_at:t premis_events:l checksums:l storage_records:l`,
	"event": `id:i agent:s created_at:t date_time:t detail:s event_type:s generic_file_id:i generic_file_identifier:s identifier:s institution_id:i
		institution_name:s intellectual_object_id:i intellectual_object_identifier:s object:s old_uuid:s outcome:s outcome_detail:s outcome_information:s updated_at:t`,
	"checksum": `id:i algorithm:s datetime:t digest:s state:s generic_file_identifier:s generic_file_id:i intellectual_object_id:i institution_id:i
		created_at:t updated_at:t`,
	"copy": `id:i generic_file_id:i url:s`,
	"deletion": `id:i institution_id:i institution_name:s institution_identifier:s requested_by_id:i requested_by_name:s requested_by_email:s requested_at:t
		confirmed_by_id:i confirmed_by_name:s confirmed_by_email:s confirmed_at:t cancelled_by_id:i cancelled_by_name:s cancelled_by_email:s cancelled_at:t
		file_count:i object_count:i`,
	"alert": `id:i institution_id:i institution_name:s institution_identifier:s type:s subject:s content:s deletion_request_id:i created_at:t user_id:i
		user_name:s user_email:s sent_at:t read_at:t`,
}

// shaped compares the fields of a record with those of the predecessor, by name and type.
func shaped(t *testing.T, what string, record map[string]any) {
	t.Helper()
	want := map[string]string{}
	for _, f := range strings.Fields(fields[what]) {
		name, kind, _ := strings.Cut(f, ":")
		want[name] = kind
	}
	got := map[string]string{}
	for name, v := range record {
		got[name] = kindOf(v, want[name] == "t")
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", what, got, want)
	}
}

func kindOf(v any, isTime bool) string {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) {
			return "i"
		}
	case bool:
		return "b"
	case []any:
		return "l"
	case string:
		if !isTime {
			return "s"
		}
		if _, err := time.Parse(time.RFC3339, v); err == nil && strings.HasSuffix(v, "Z") {
			return "t"
		}
	}
	return fmt.Sprintf("%T", v)
}

// Every record has exactly the fields of the predecessor, in lists and by itself.
func TestFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, what := range map[string]string{
		"items": "item", "objects": "object", "files": "file", "events?intellectual_object_id=1": "event", "events?generic_file_id=1": "event",
		"checksums?generic_file_id=1": "checksum", "deletions": "deletion", "alerts": "alert",
	} {
		for _, u := range []tool{s.ann, s.staff} {
			if u.person.Institution == "" && path == "files" {
				path = "files?institution_id=1"
			}
			a := u.gets(path)
			if got := slices.Sorted(maps.Keys(a.body)); !slices.Equal(got, []string{"count", "next", "previous", "results"}) || len(a.results()) == 0 {
				t.Errorf("%s: the envelope has %q: %.200s", path, got, a.text)
			}
			for _, record := range a.results() {
				shaped(t, what, record)
			}
		}
	}
	event := s.ann.gets("events?generic_file_id=1").results()[0]
	digest := s.ann.gets("checksums?generic_file_id=1").results()[0]
	for path, what := range map[string]string{
		"items/show/1": "item", "items/show/91": "item", "objects/show/1": "object", "objects/show/test.edu/bag%201": "object", "objects/show/test.edu%2Fbag%201": "object",
		"files/show/1": "whole file", "files/show/test.edu%2Fbag%201%2Fdata%2F7": "whole file", "files/show/test.edu/bag%201/data/7": "whole file",
		"events/show/" + event["identifier"].(string) + "?generic_file_identifier=test.edu/bag%201/data/7": "event",
		"checksums/show/" + fmt.Sprintf("%.0f", digest["id"]) + "?generic_file_id=1":                       "checksum", "deletions/show/1": "deletion", "alerts/show/1/1": "alert",
	} {
		shaped(t, what, s.ann.gets(path).body)
	}
	whole := s.ann.gets("files/show/1").body
	for list, what := range map[string]string{"premis_events": "event", "checksums": "checksum", "storage_records": "copy"} {
		records, _ := whole[list].([]any)
		if len(records) == 0 {
			t.Errorf("a file has no %s", list)
		}
		for _, r := range records {
			shaped(t, what, r.(map[string]any))
		}
	}
}

// What is not known is zero, and neither null nor left out; what is known is there.
func TestValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const never = "0001-01-01T00:00:00Z"
	for path, want := range map[string]map[string]any{
		"items/show/91": {
			"intellectual_object_id": 0.0, "alt_identifier": "", "storage_option": "", "queued_at": never, "stage_started_at": never, "pid": 0.0, "node": "", "generic_file_id": 0.0,
			"date_processed": "2026-02-25T23:59:00Z", "status": "Pending", "stage": "Receive", "institution_name": "The test.edu", "size": 1.0, "retry": true,
		},
		"items/show/1": {"intellectual_object_id": 1.0, "alt_identifier": "alt1", "bag_group_identifier": "group1", "source_organization": "Source", "status": "Success", "etag": "1e1"},
		"objects/show/1": {
			"file_count": 2500.0, "size": 2500.0 * 2501 / 2, "payload_file_count": 2475.0, "institution_parent_id": 0.0, "institution_type": "MemberInstitution",
			"institution_identifier": "test.edu", "state": "A", "updated_at": "2026-01-31T23:00:00Z",
		},
		"files/show/1": {"identifier": "test.edu/bag 1/data/7", "size": 1.0, "last_fixity_check": "2026-01-05T00:00:00Z"},
		"deletions/show/2": {
			"confirmed_by_id": 0.0, "confirmed_by_name": "", "confirmed_at": never, "cancelled_by_email": "", "cancelled_at": never, "requested_by_email": "Ann@test.edu", "file_count": 3.0,
		},
		"deletions/show/1": {"confirmed_by_id": 1.0, "confirmed_by_email": "Ann@test.edu", "confirmed_at": "2026-01-09T00:00:00Z", "object_count": 0.0},
		"alerts/show/1/1":  {"user_id": 1.0, "user_email": "Ann@test.edu", "read_at": "2026-01-10T00:00:00Z", "sent_at": never, "deletion_request_id": 0.0},
		"alerts/show/2/1":  {"read_at": never, "subject": "Subject 2"},
	} {
		got := s.ann.gets(path).body
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s is %v, want %v", path, name, got[name], v)
			}
		}
	}
	file := s.ann.gets("files?identifier=test.edu/bag%201/data/7").results()[0]
	if file["mtime"] != never || file["sha512"] != "" || file["md5"] == "" || file["object_identifier"] != "test.edu/bag 1" || file["access"] != "institution" {
		t.Errorf("%v", file)
	}
	var newest any
	for _, c := range s.ann.gets("checksums?generic_file_id=1&algorithm=md5").results() {
		if c["datetime"] == "2026-01-03T00:00:00Z" {
			newest = c["digest"]
		}
	}
	if file["md5"] != newest {
		t.Errorf("the file's MD5 is %v, and its newest is %v", file["md5"], newest)
	}
}
