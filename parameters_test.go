package farol_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bareNumber is a parameter whose first use compares it with a number: PostgreSQL takes it
// for an integer of 4 bytes, and refuses the number of a record above 2,147,483,647.
var bareNumber = regexp.MustCompile(`(\$[0-9]+|@[a-z_]+) *(=|<>) *0\b`)

// Parameters that are compared with 0 say that they have 8 bytes.
func TestParametersThatMayBe0HaveATypeOfTheirOwn(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		read++
		for _, found := range bareNumber.FindAllString(string(text), -1) {
			t.Errorf("%s: %s: write ::bigint behind the parameter", path, found)
		}
		return err //nolint:wrapcheck // it names the file
	})
	if err != nil || read < 300 {
		t.Errorf("%d files read, %v", read, err)
	}
}
