package pipeline

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// identified is what a file's bytes say it is, and what a virus scanner said of
// them.
type identified struct {
	Index   int    `json:"i"`
	MIME    string `json:"mime"`
	PUID    string `json:"puid,omitempty"`
	By      string `json:"by"`
	Name    string `json:"name,omitempty"`    // PRONOM's
	Method  string `json:"method,omitempty"`  // container, signature or extension
	Version string `json:"version,omitempty"` // of the identifier and its signatures
	Reason  string `json:"reason,omitempty"`  // why By is not Siegfried
	At      int64  `json:"at,omitempty"`      // Unix time

	Scanner   string `json:"scanner,omitempty"` // that looked for viruses; "": none did
	Infection string `json:"infection,omitempty"`
	Unchecked string `json:"unchecked,omitempty"` // why it did not look at the whole file
}

// format is the file's format as it goes on record.
func (f identified) format() registry.Format {
	return registry.Format{
		MIME: f.MIME, PUID: f.PUID, Name: f.Name, Method: f.Method, IdentifiedBy: f.By,
		SignatureVersion: f.Version, Reason: f.Reason, At: f.time(),
	}
}

func (f identified) time() time.Time {
	if f.At == 0 { // as in lists of before
		return time.Time{}
	}
	return time.Unix(f.At, 0).UTC()
}

// between separates the parts of what Redis keeps of a file.
const between = "\x1f"

// mostReason bounds in bytes what Redis keeps of a reason.
const mostReason = 120

// pack is what Redis keeps of a file while the stage runs: all but what is the
// same for every file, since there is little room for each.
func (f identified) pack() string {
	parts := []string{
		f.By[:1], f.MIME, f.PUID, f.Name, f.Method, versionTag(f.Version), strconv.FormatInt(f.At, 36), cut(f.Reason, mostReason),
		f.Scanner, f.Infection, cut(f.Unchecked, mostReason),
	}
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, between, " ")
	}
	return strings.TrimRight(strings.Join(parts, between), between)
}

// cut keeps the beginning of a text.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// versionTag stands for a version where there is no room for it.
func versionTag(version string) string {
	if version == "" {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(version))
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// errOtherSignatures says that what Redis has kept is of another version.
var errOtherSignatures = errors.New("the signatures for formats have changed while files of the bag were being identified")

// unpack makes the list of what Redis has kept. If a part of the files was
// identified by another version, as when a worker is upgraded in between, that is
// forgotten, so that the next attempt identifies all of them.
func (s *identify) unpack(ctx context.Context, w *work, results map[int]string) (map[int]identified, error) {
	if len(results) == 0 {
		return nil, nil
	}
	version, err := s.Formats.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify formats: %w", err)
	}
	tag := versionTag(version)
	list := make(map[int]identified, len(results))
	for i, text := range results {
		f, was, ok := unpackFormat(i, text)
		if !ok || was != "" && was != tag {
			return nil, errors.Join(errOtherSignatures, w.progressErr(s.Progress.ClearStage(ctx, w.claim(), w.passOf())))
		}
		if was != "" {
			f.Version = version
		}
		list[i] = f
	}
	return list, nil
}

// unpackFormat reads what pack has written, but for the version, whose tag it returns.
func unpackFormat(i int, text string) (f identified, tag string, ok bool) {
	parts := strings.Split(text, between)
	parts = append(parts, make([]string, max(0, 11-len(parts)))...)
	at, err := strconv.ParseInt(parts[6], 36, 64)
	f = identified{
		Index: i, By: "siegfried", MIME: parts[1], PUID: parts[2], Name: parts[3], Method: parts[4], At: at, Reason: parts[7],
		Scanner: parts[8], Infection: parts[9], Unchecked: parts[10],
	}
	if parts[0] != f.By[:1] {
		f.By = "ext map"
	}
	return f, parts[5], err == nil
}
