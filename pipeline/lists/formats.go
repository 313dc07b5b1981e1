package lists

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/registry"
)

// Format is what a file's bytes say it is, and what a virus scanner said of
// them.
type Format struct {
	Index   int    `json:"i"`
	MIME    string `json:"mime"`
	PUID    string `json:"puid,omitempty"`
	By      string `json:"by"`
	Name    string `json:"name,omitempty"`    // PRONOM's
	Method  string `json:"method,omitempty"`  // container, signature or extension
	Version string `json:"version,omitempty"` // of the identifier and its signatures
	Reason  string `json:"reason,omitempty"`  // why By is not Siegfried
	At      int64  `json:"at,omitzero"`       // Unix time

	Scanner   string `json:"scanner,omitempty"` // that looked for viruses; "": none did
	Infection string `json:"infection,omitempty"`
	Unchecked string `json:"unchecked,omitempty"` // why it did not look at the whole file
}

// Format is the file's format as it goes on record.
func (f Format) Format() registry.Format {
	return registry.Format{
		MIME: f.MIME, PUID: f.PUID, Name: f.Name, Method: f.Method, IdentifiedBy: f.By,
		SignatureVersion: f.Version, Reason: f.Reason, At: f.Time(),
	}
}

// Time is when the file was identified; zero if that is not known.
func (f Format) Time() time.Time {
	if f.At == 0 { // as in lists of before
		return time.Time{}
	}
	return time.Unix(f.At, 0).UTC()
}

// between separates the parts of what Redis keeps of a file.
const between = "\x1f"

// mostReason bounds in bytes what Redis keeps of a reason.
const mostReason = 120

// Pack is what Redis keeps of a file while the stage runs: all but what is the
// same for every file, since there is little space for each.
func (f Format) Pack() string {
	parts := []string{
		f.By[:1], f.MIME, f.PUID, f.Name, f.Method, VersionTag(f.Version), strconv.FormatInt(f.At, 36), cut(f.Reason, mostReason),
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

// VersionTag stands for a version where there is no space for it.
func VersionTag(version string) string {
	if version == "" {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(version))
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// UnpackFormat reads what pack has written, but for the version, whose tag it returns.
func UnpackFormat(i int, text string) (f Format, tag string, ok bool) {
	parts := strings.Split(text, between)
	parts = append(parts, make([]string, max(0, 11-len(parts)))...)
	at, err := strconv.ParseInt(parts[6], 36, 64)
	f = Format{
		Index: i, By: "siegfried", MIME: parts[1], PUID: parts[2], Name: parts[3], Method: parts[4], At: at, Reason: parts[7],
		Scanner: parts[8], Infection: parts[9], Unchecked: parts[10],
	}
	if parts[0] != f.By[:1] {
		f.By = "ext map"
	}
	return f, parts[5], err == nil
}

// AsIdentified is what is kept of a result.
func AsIdentified(r format.Result) Format {
	reason := r.Reason
	if r.Detail != "" {
		reason += ": " + r.Detail
	}
	return Format{
		MIME: r.MIME, PUID: r.PUID, Name: r.Name, Method: r.Method, By: r.IdentifiedBy, Version: r.Version,
		Reason: CleanText(reason), At: time.Now().Unix(),
	}
}

// CleanText takes out what a database's text cannot hold.
func CleanText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
