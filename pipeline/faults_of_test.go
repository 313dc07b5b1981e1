package pipeline_test

import (
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// Of a bad bag it is kept which file is wrong, what was expected and what found.
func TestWhatIsWrongWithABagIsKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("bad.tar", a.Bag(bagtest.Spec{Name: "bad", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}, Corrupt: []string{"data/a.txt"}}))
	engine := a.Engine()
	a.UpTo(engine, "Validate")
	a.One(engine, "Validate")
	f := a.Faults(id)
	if len(f.List) == 0 || f.Token != pipelinetest.Value[int64](a, `SELECT max(claim_token) FROM work_item_attempts`) {
		t.Fatalf("kept: %+v", f)
	}
	const md5OfA = "0cc175b9c0f1b6a831c399e269772661" // RFC 1321, A.5
	got := f.List[0]
	if got.Code != "digest-mismatch" || got.Path != "data/a.txt" || got.Found != "md5:"+md5OfA && got.Expected != "md5:"+md5OfA ||
		got.Found == got.Expected || !strings.HasPrefix(got.Expected, "md5:") || !strings.HasPrefix(got.Found, "md5:") ||
		!strings.Contains(got.Message, strings.TrimPrefix(got.Expected, "md5:")) {
		t.Errorf("kept: %+v", got)
	}
}

func ofSample(path string) bool {
	return strings.HasPrefix(path, "data/") || path == "bag-info.txt" || path == "aptrust-info.txt"
}

// A store that is away is the storage's fault, and says of which files.
func TestStorageThatIsAwayIsNamed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
	engine := a.Engine()
	a.UpTo(engine, "Store")
	proxy.CutAfter(400_000)
	a.One(engine, "Store")
	item := a.Item(id)
	if item.Status != "Pending" || item.Attempt != 0 || item.ErrorCode != "storage-unavailable" {
		t.Errorf("item = %+v", item)
	}
	// Which files were under way when the connection ended is the machine's choice.
	f := a.Faults(id)
	if len(f.List) == 0 {
		t.Errorf("kept: %+v", f)
	}
	for _, fault := range f.List {
		if fault.Code != "storage-unavailable" || !strings.HasPrefix(fault.Message, fault.Path+": ") || !ofSample(fault.Path) {
			t.Errorf("kept: %+v", fault)
		}
	}
}
