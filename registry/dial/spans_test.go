package dial

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Without tracing, what is asked of each statement costs no memory.
func TestStatementsAreNoSpansWithoutTracing(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		of := spans{}.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: "SELECT 1"})
		spans{}.TraceQueryEnd(of, nil, pgx.TraceQueryEndData{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStatementsHaveNames(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"-- settle: ends attempts.\nUPDATE x": "settle", "\n\tSELECT id\n\tFROM files WHERE a = 'b'": "SELECT id FROM", "begin": "begin", "": "",
	} {
		if got := nameOf(sql); got != want {
			t.Errorf("%q is called %q, want %q", sql, got, want)
		}
	}
}
