package bag_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
)

func TestTagFilesAreUnderstoodInEveryFormThatToolsWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       []string // name=value
		warnings   []string
	}{
		{"plain", "A: 1\nB: 2\n", []string{"A=1", "B=2"}, nil},
		{"no space", "A:1\n", []string{"A=1"}, nil},
		{"a colon in the value", "A: b: c\n", []string{"A=b: c"}, nil},
		{"no value", "A:\nB: \n", []string{"A=", "B="}, nil},
		{"folded by a tab and by spaces", "A: one\n\ttwo\n   three\n", []string{"A=one two three"}, nil},
		{"folded after nothing", "A:\n  one\n", []string{"A=one"}, nil},
		{"folded line with a colon", "A: see\n  http://example.org: here\n", []string{"A=see http://example.org: here"}, nil},
		{"repeated, in order", "A: 2\nB: x\nA: 1\n", []string{"A=2", "B=x", "A=1"}, nil},
		{"CR LF, blank lines, no end", "A: 1\r\n\r\nB: 2", []string{"A=1", "B=2"}, nil},
		{"a label of two words", "Source Organization: x\n", []string{"Source Organization=x"}, nil},
		{"not indented", "A: one\ntwo\n", []string{"A=one two"}, []string{"tag-line-not-indented"}},
		{"not indented, with a colon", "A: one\nsee https://x\n", []string{"A=one see https://x"}, []string{"tag-line-not-indented"}},
		{"byte order mark", "\ufeffA: 1\n", []string{"A=1"}, []string{"byte-order-mark"}},
		{"nothing", "", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := read(t, rawBag(t, bagtest.File{Path: "bag-info.txt", Content: tt.text}))
			var got []string
			for _, tag := range b.Tags {
				got = append(got, tag.Name+"="+tag.Value)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(b.Problems) > 0 {
				t.Errorf("problems %v, tags: %s", b.Problems, diff)
			}
			if diff := cmp.Diff(tt.warnings, codes(b.Warnings)); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
		})
	}
}

func TestTagFilesThatCannotBeTrustedAreNamed(t *testing.T) {
	t.Parallel()
	const info = "bag-info.txt"
	for _, tt := range []struct{ name, path, text, code string }{
		{"no label", info, "just text\n", "tag-file-malformed"},
		{"folded at the beginning", info, "  A: 1\n", "tag-file-malformed"},
		{"not UTF-8", info, "A: \xff\n", "tag-file-encoding"},
		{"NUL", info, "A: x\x00y\n", "tag-control-character"},
		{"escape", info, "A: x\x1b[31my\n", "tag-control-character"},
		{"large", info, "A: " + strings.Repeat("x", 1<<20), "tag-file-too-large"},
		{"many tags", info, strings.Repeat("A: 1\n", 10_001), "tag-file-too-large"},
		{"unknown encoding", "bagit.txt", "Tag-File-Character-Encoding: EBCDIC\n", "encoding-unsupported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := read(t, rawBag(t, bagtest.File{Path: tt.path, Content: tt.text}))
			if len(b.Problems) != 1 || b.Problems[0].Code != tt.code || b.Problems[0].Path != tt.path {
				t.Errorf("problems %.300v, want one %s", b.Problems, tt.code)
			}
			for _, tag := range b.Tags {
				if strings.ContainsAny(tag.Value, "\x00\x1b") {
					t.Errorf("value %q", tag.Value)
				}
			}
		})
	}
}

// A value of half a million folded lines took the square of that, once.
func TestFoldingIsLinear(t *testing.T) {
	t.Parallel()
	b := read(t, rawBag(t, bagtest.File{Path: "bag-info.txt", Content: "A: 1\n" + strings.Repeat(" x\n", 300_000)}))
	if got, _ := b.Tag("bag-info.txt", "A"); len(got) != 600_001 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestTagsAreFoundInAnyCaseAndOnlyInTheirFile(t *testing.T) {
	t.Parallel()
	b := &bag.Bag{Tags: []bag.Tag{{File: "bag-info.txt", Name: "Title", Value: "first"}, {File: "bag-info.txt", Name: "TITLE", Value: "second"}}}
	if got, ok := b.Tag("bag-info.txt", "title"); got != "first" || !ok {
		t.Errorf("%q, %v", got, ok)
	}
	if got, ok := b.Tag("aptrust-info.txt", "title"); got != "" || ok {
		t.Errorf("%q, %v", got, ok)
	}
}
