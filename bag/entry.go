package bag

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

// EntryHeader is what comes before the content of an entry in the tar of a bag:
// its header and, if its name is long or not in ASCII, a PAX header for that. A
// name that ends in a slash is that of a directory.
//
// The same name, size and time always give the same bytes, so that anyone who writes
// a tar may go on where another stopped. The time is cut to seconds.
//
// The error says what is wrong with a name that Read would not take.
func EntryHeader(name string, size int64, modTime time.Time) ([]byte, error) {
	h := tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Size:     size,
		Mode:     0o644,
		ModTime:  modTime.UTC().Truncate(time.Second),
	}
	_, _, fault := naming.SplitEntry(name)
	if strings.HasSuffix(name, "/") {
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
		var top string
		top, _, fault = naming.SplitDirectory(name)
		if top == "" && fault == "" {
			fault = "it is no directory of a bag"
		}
		if size != 0 {
			fault = "a directory has no content"
		}
	}
	if fault != "" {
		return nil, fmt.Errorf("tar entry '%s': %s", finding.Show(name), fault)
	}
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&h); err != nil {
		return nil, fmt.Errorf("tar entry '%s': %w", finding.Show(name), err)
	}
	return out.Bytes(), nil
}

// Padding is the number of zero bytes that follow content of the size in a tar.
func Padding(size int64) int64 { return padded(size) - size }

// EndOfArchive is what comes after the last entry of a tar.
func EndOfArchive() []byte { return make([]byte, 2*blockSize) }
