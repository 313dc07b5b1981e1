package pipeline

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Names go into headers as they are only where every provider carries them
// unharmed.
func TestNamesInMetadata(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 400)
	for name, tc := range map[string]struct {
		path   string
		encode bool
		want   map[string]string
	}{
		"plain":              {"data/a b.txt", false, map[string]string{"bagpath": "data/a b.txt"}},
		"plain for Wasabi":   {"data/a b.txt", true, map[string]string{"bagpath-encoded": "data%2Fa+b.txt"}},
		"two spaces":         {"data/a  b", false, map[string]string{"bagpath-encoded": "data%2Fa++b"}},
		"space at the end":   {"data/a ", false, map[string]string{"bagpath-encoded": "data%2Fa+"}},
		"accents":            {"data/é", false, map[string]string{"bagpath-encoded": "data%2F%C3%A9"}},
		"narrow space":       {"a\u202fb", false, map[string]string{"bagpath-encoded": "a%E2%80%AFb"}},
		"line separator":     {"a\u2028b", false, map[string]string{"bagpath-encoded": "a%E2%80%A8b"}},
		"control character":  {"a\x07b", false, map[string]string{"bagpath-encoded": "a%07b"}},
		"too long for S3":    {long, false, map[string]string{"bagpath-encoded-beginning": strings.Repeat("%C3%A9", 233)}},
		"long but not too":   {strings.Repeat("a", 1024), false, map[string]string{"bagpath": strings.Repeat("a", 1024)}},
		"nothing to be said": {"", false, map[string]string{"bagpath-encoded": ""}},
	} {
		got := map[string]string{}
		describe(got, "bagpath", tc.path, tc.encode)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for key, value := range got {
			if _, err := url.QueryUnescape(value); strings.HasSuffix(key, "encoded") && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Whatever files a bag has: each is in one group, in order, and what a group
// reads in one request is small and lies together.
func TestGroupsOfFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 5000), rapid.Int64Range(smallFile-2, smallFile+2), rapid.Int64Range(0, 5<<20)), 0, 300).Draw(t, "sizes")
		workers := rapid.IntRange(1, 16).Draw(t, "workers")
		var files []*file
		offset := int64(512)
		for i, size := range sizes {
			files = append(files, &file{index: i, path: fmt.Sprint(i), offset: offset, size: size})
			offset += (size+511)/512*512 + 512 + rapid.SampledFrom([]int64{0, 0, 0, 512, 100_000}).Draw(t, "gap")
		}
		next := 0
		for _, group := range groupFiles(files, workers) {
			var small int64
			for _, f := range group {
				if f.index != next {
					t.Fatalf("file %d stands where %d should", f.index, next)
				}
				next++
				if f.size > smallFile && len(group) > 1 {
					t.Fatalf("a file of %d bytes shares a group of %d", f.size, len(group))
				}
				small += f.size
			}
			span := group[len(group)-1].offset + group[len(group)-1].size - group[0].offset
			if len(group) > 64 || len(group) > 1 && span > 1<<20 {
				t.Fatalf("a group of %d files spans %d bytes", len(group), span)
			}
		}
		if next != len(files) {
			t.Fatalf("%d of %d files are in groups", next, len(files))
		}
	})
}
