package bagtest

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Outline returns the pieces of a tar that a page in a browser sends for it to be judged:
// each with its offset and its length before it. They are the headers, the text files at the
// top of the bag, and the end.
func Outline(data []byte) ([]byte, error) {
	var out bytes.Buffer
	r := &counted{r: bytes.NewReader(data)}
	entries := tar.NewReader(r)
	piece := func(from, to int64) {
		to = min(to, int64(len(data)))
		if from < to {
			out.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(from)), uint32(to-from))) //nolint:gosec // small
			out.Write(data[from:to])
		}
	}
	for header := int64(0); ; {
		h, err := entries.Next()
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			piece(header, int64(len(data)))
			return out.Bytes(), nil // what is wrong with the tar is for others to find
		}
		piece(header, r.n)
		header = r.n
		if h.Typeflag == tar.TypeReg {
			if strings.Count(strings.TrimPrefix(h.Name, "./"), "/") == 1 && strings.HasSuffix(h.Name, ".txt") {
				piece(r.n, r.n+h.Size)
			}
			header += h.Size + (-h.Size & 511)
		}
	}
}

// counted does not seek, so that archive/tar reads what it passes over.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // it is io.EOF
}
