package mailbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The box keeps the newest mails, and no recipient chooses where a file lies.
func TestABoxIsBounded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mail")
	box, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range mostMails + 5 {
		if err := box.Keep(Mail{To: []string{"../../x/" + strings.Repeat("y", 300)}, Text: fmt.Appendf(nil, "mail %d", n)}); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadDir(dir)
	if err != nil || len(kept) != mostMails {
		t.Fatalf("%d mails are kept, %v", len(kept), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, kept[0].Name())); err != nil || string(text) != "mail 5" {
		t.Errorf("the oldest is %q, %v", text, err)
	}
}
