package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/virus"
)

// A program that cannot be started is this process's failure, and not the file's.
func TestChildrenThatDoNotStartAreNoFilesFault(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"/none/farol": "identifier-missing",
		plain:         "identifier-denied",
		"/bin/false":  "identifier-unavailable",
	} {
		formats, err := format.Start(t.Context(), format.Options{Command: []string{command}})
		if err != nil {
			t.Fatal(err)
		}
		err = Deps{Formats: formats}.identifierProbe(t.Context())
		if f := claim.FaultIn(err); f == nil || f.Service != "identifier" || f.Code() != want {
			t.Errorf("%s: %v is %+v, want %s", command, err, f, want)
		}
		formats.Close()
	}
}

// A scanner that is not there is to blame for it; a file that cannot be read is not
// the scanner's doing.
func TestScannerIsBlamedForItselfOnly(t *testing.T) {
	t.Parallel()
	away, err := virus.New("unix://"+filepath.Join(t.TempDir(), "none"), virus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = away.Scan(t.Context(), 1, strings.NewReader("a"))
	if f := claim.FaultIn(scannerErr(t.Context(), err)); f == nil || f.Code() != "virus-scanner-unavailable" {
		t.Errorf("%v is %+v", err, f)
	}
	if err := scannerErr(t.Context(), virus.ErrContent); claim.FaultIn(err) != nil {
		t.Errorf("%v is blamed on the scanner", err)
	}
}
