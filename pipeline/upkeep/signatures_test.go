package upkeep

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/formats"
)

// corpus has files that formats of the small sets match, by their content, their name or
// both, and some that none matches.
func corpus() (files []bagtest.File) {
	for i, begin := range []string{"%PDF-1.4", "%PDF-9.0", "PHOTO", "TAB1", "TAC1", "SONG of", "Dear Sir", "nothing"} {
		for _, ext := range []string{"pdf", "pho", "log", "csv", "txt"} {
			files = append(files, bagtest.File{Path: fmt.Sprintf("data/%d.%s", i, ext), Content: begin + " and more"})
		}
	}
	return append(files, bagtest.File{Path: "data/empty.log"})
}

const foundFormats = `SELECT concat_ws(' | ', split_part(identifier, '/', 4), file_format, format_puid, format_name, format_method, format_identified_by, format_reason)
	FROM generic_files WHERE identifier LIKE '%/data/%' ORDER BY identifier`

// The files that are identified again by new signatures are all that a full
// identification gives another format. None else is read, and no object is changed.
func TestNewSignaturesReachWhatTheyChange(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newArchive(t)
	was, is := must.Get(os.ReadFile("../../format/testdata/v1001.sig"))(t), must.Get(os.ReadFile("../../format/testdata/v1002.sig"))(t)
	a.Deps.Formats = pipelinetest.IdentifierBy(t, was)
	a.Deposit("mixed.tar", a.Bag(bagtest.Spec{Name: "mixed", Files: corpus()}))
	a.Work()
	before, objects := a.Rows(foundFormats), a.objects()
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE format_signature_version LIKE '%V1001.xml%'`); n < 40 {
		t.Fatalf("%d files were identified by the old signatures", n)
	}

	d := must.Get(format.Compare(was, is))(t)
	preview := must.Get(PreviewSignatures(ctx, a.Deps.Registry, a.Deps.Targets, d))(t)
	b := a.backfill()
	b.Formats = pipelinetest.IdentifierBy(t, is)
	stopped, stop := context.WithCancel(ctx)
	stop()
	killed, err := b.Run(stopped, preview.Filter, must.Get(formats.In(a.Deps.Registry).Count(ctx, preview.Filter))(t), func(int64) {}, func(Left) {})
	if err == nil || killed.Identified != 0 {
		t.Errorf("a run that is stopped identified %d files, and ends with %v", killed.Identified, err)
	}
	part := preview.Filter // what a run has on record that was killed after some of its transactions
	part.Groups = part.Groups[:len(part.Groups)/2]
	first, left := a.filled(b, part)
	sum, rest := a.filled(b, must.Get(PreviewSignatures(ctx, a.Deps.Registry, a.Deps.Targets, d))(t).Filter)
	if first.Identified < 5 || sum.Identified < 5 || first.Identified+sum.Identified != preview.Files || len(left)+len(rest) > 0 {
		t.Errorf("%d files were counted, and %+v and %+v came of them; left %v and %v", preview.Files, first, sum, left, rest)
	}
	sum.Changed += first.Changed
	applied := a.Rows(foundFormats)
	changed := 0
	for i := range before {
		if before[i] != applied[i] {
			changed++
		}
	}
	if int64(changed) != sum.Changed || changed < 10 || preview.Spared < 5 {
		t.Errorf("%d files have another format, %d are said to; %d were spared", changed, sum.Changed, preview.Spared)
	}
	events := a.Rows(`SELECT DISTINCT split_part(outcome_information, '; ', 2) FROM premis_events WHERE event_type = 'format identification' AND object LIKE '%V1002.xml%'`)
	if want := "before by siegfried 1.11.2, DROID_SignatureFile_V1001.xml; no container signatures; built without reports"; len(events) != 1 || !strings.HasPrefix(want, events[0]) || events[0] == "" {
		t.Errorf("the events say %q, want both versions", events)
	}
	if again := must.Get(PreviewSignatures(ctx, a.Deps.Registry, a.Deps.Targets, d))(t); again.Files != 0 {
		t.Errorf("%d files are affected after all were identified", again.Files)
	}

	a.Exec(`UPDATE generic_files SET format_signature_version = 'none', updated_at = now()`)
	a.filled(b, formats.Filter{OlderThan: 100_000})
	if diff := cmp.Diff(applied, a.Rows(foundFormats)); diff != "" {
		t.Errorf("a full identification finds other formats (-applied +full):\n%s", diff)
	}
	if diff := cmp.Diff(objects, a.objects()); diff != "" {
		t.Errorf("objects changed:\n%s", diff)
	}
}

// What it costs is counted for files of which a copy can be read, and priced for those
// that are archived.
func TestReadingIsPriced(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	was, is := must.Get(os.ReadFile("../../format/testdata/v1001.sig"))(t), must.Get(os.ReadFile("../../format/testdata/v1002.sig"))(t)
	a.Deps.Formats = pipelinetest.IdentifierBy(t, was)
	letter := bagtest.File{Path: "data/a.log", Content: "Dear Sir"}
	a.Deposit("warm.tar", a.Bag(bagtest.Spec{Name: "warm", Files: []bagtest.File{letter, {Path: "data/b.csv", Content: "TAB" + strings.Repeat("x", 600_000)}}}))
	a.Deposit("cold.tar", a.Bag(bagtest.Spec{Name: "cold", StorageOption: "Glacier-VA", Files: []bagtest.File{letter}}))
	a.Work()
	a.Exec(`UPDATE generic_files SET size = 107374182400 WHERE identifier LIKE '%cold/data/a.log'`)
	a.Exec(`UPDATE generic_files SET state = 'D' WHERE identifier NOT LIKE '%/data/%'`)
	p := must.Get(PreviewSignatures(context.Background(), a.Deps.Registry, a.Deps.Targets, must.Get(format.Compare(was, is))(t)))(t)
	if len(p.Reading) != 2 || p.Files != 3 {
		t.Fatalf("%d files, %+v", p.Files, p.Reading)
	}
	warm, cold := p.Reading[0], p.Reading[1]
	if warm.Files != 2 || warm.Requests != 4 || warm.Bytes != 600_011 || warm.Retrieve != 0 {
		t.Errorf("readable: %+v", warm)
	}
	if cold.Class != "GLACIER" || cold.Files != 1 || cold.Retrieve != 107374182400 || len(cold.Prices) != 3 || cold.Prices[0].USD != "3.01" || cold.Prices[0].Tier != "Expedited" {
		t.Errorf("archived: %+v", cold)
	}
}
