package ingest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

func fileOf(path, content string) *lists.File {
	return &lists.File{Content: copies.Content{Path: path, Size: int64(len(content)), SHA256: sha256.Sum256([]byte(content))}}
}

// A content is identified once, for each ending that names have: some signatures are of
// several formats, which the ending tells apart.
func TestAContentIsIdentifiedOnce(t *testing.T) {
	t.Parallel()
	command := must.Get(testenv.Identifier())(t)
	identifier, err := format.Start(t.Context(), format.Options{Command: command}) // to be closed
	if err != nil {
		t.Fatal(err)
	}
	s := &identify{Formats: identifier}
	const pdf = "%PDF-1.4\nhello\n%%EOF\n"
	first, err := s.identifyOnce(t.Context(), fileOf("data/a.pdf", pdf), []byte(pdf))
	if err != nil || first.PUID != "fmt/18" {
		t.Fatalf("identified as %+v, %v", first, err)
	}
	identifier.Close()
	again, err := s.identifyOnce(t.Context(), fileOf("data/other/b.PDF", pdf), []byte(pdf))
	if diff := cmp.Diff(first, again); diff != "" || err != nil {
		t.Errorf("another name has another answer: %v\n%s", err, diff)
	}
	for path, content := range map[string]string{"data/a.txt": pdf, "data/a.tar.pdf": pdf, "data/a": pdf, "data/a.pdf": pdf + "more"} {
		if found, err := s.identifyOnce(t.Context(), fileOf(path, content), []byte(content)); !errors.Is(err, format.ErrClosed) {
			t.Errorf("%s is known as %+v, %v", path, found, err)
		}
	}
}

// What befell a child says nothing of the content that it had.
func TestAFailedIdentificationIsNotKept(t *testing.T) {
	t.Parallel()
	s := &identify{Formats: pipelinetest.BadIdentifier(t)}
	f := fileOf("data/a.tiff", "hello")
	if found, err := s.identifyOnce(t.Context(), f, []byte("hello")); err != nil || found.Reason != format.Crashed {
		t.Fatalf("identified as %+v, %v", found, err)
	}
	if found, known := s.known.find(contentOf(f)); known {
		t.Errorf("it is known as %+v", found)
	}
}

// What is known is of one version of the signatures, and no more than fits; what was
// identified lately is there.
func TestKnownFormatsAreBounded(t *testing.T) {
	t.Parallel()
	var k knownFormats
	file := func(i int) content { return contentOf(fileOf("data/a.txt", fmt.Sprint(i))) }
	k.keep(file(-1), format.Result{Version: "1"})
	for i := range 3*mostYoung + 5 {
		k.keep(file(i), format.Result{Version: "2", PUID: fmt.Sprint(i)})
		if n := len(k.young) + len(k.old); n > 2*mostYoung {
			t.Fatalf("%d are known", n)
		}
		if i == 5 {
			if _, known := k.find(file(-1)); known {
				t.Error("an answer of other signatures is known")
			}
		}
	}
	for i := 2*mostYoung + 5; i < 3*mostYoung+5; i++ {
		if found, known := k.find(file(i)); !known || found.PUID != fmt.Sprint(i) {
			t.Fatalf("file %d is known as %+v, %v", i, found, known)
		}
	}
}
