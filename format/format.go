// Package format identifies file formats with Siegfried and its PRONOM
// signatures, in child processes that may die. What comes in is a name and a file
// that can be read by ranges; what goes out is a [Result], always with a MIME type.
//
// What a depositor sends may crash an identifier, hang it or fill its memory.
// Such a file costs its own identification and nothing else: the child that
// was reading it is replaced, and the file keeps the type that its extension
// suggests, together with the reason.
//
// The child reads a file by ranges and within a budget, so that a file of any
// size costs a few mebibytes of reading.
package format

import (
	_ "embed"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// How a [Result] came about.
const (
	BySiegfried    = "siegfried"
	ByExtensionMap = "ext map"
)

// Why Siegfried has no answer, in [Result.Reason].
const (
	Crashed  = "crashed"   // its process ended, or broke the protocol
	TimedOut = "timed out" // no answer within [Options.Timeout]
	Refused  = "refused"   // it read the file and reported an error
	Unknown  = "unknown"   // no signature matches, or PRONOM gives the format no MIME type
	Empty    = "empty"     // no bytes to look at
)

// A Result is what is known of a file's format.
type Result struct {
	MIME         string // never empty; application/binary if nothing is known
	PUID         string // PRONOM identifier, such as fmt/18; empty if unknown
	Name         string // PRONOM's name of the format; empty if unknown
	Method       string // what the answer rests on: container, signature or extension
	IdentifiedBy string // who gave the MIME type: BySiegfried or ByExtensionMap
	Warning      string // Siegfried's doubts in its own words, such as "extension mismatch"
	Reason       string // why MIME is not Siegfried's; empty if it is
	Detail       string // more about Reason, for people: an exit status, an error
	Version      string // the signatures used; empty if no child was asked
}

var signatureFile = regexp.MustCompile(`DROID_SignatureFile_V([0-9]{1,6})[.]`)

// SignatureNumber is the number of PRONOM's signature file in a [Result.Version],
// or 0 if there is none. A file of a higher number is newer.
func SignatureNumber(version string) (n int) {
	if m := signatureFile.FindStringSubmatch(version); m != nil {
		n, _ = strconv.Atoi(m[1]) // so few digits fit
	}
	return n
}

const unknownMIME = "application/binary"

// extensions has a line for each extension, dot and MIME type apart by a
// space, and begins with a newline so that each entry is preceded by one.
//
//go:embed extensions.txt
var extensions string

// ByExtension returns the preliminary MIME type of a file by the extension of
// its path, in any case of letters, or application/binary.
func ByExtension(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if len(ext) < 2 || strings.ContainsAny(ext, " \n") {
		return unknownMIME
	}
	_, rest, found := strings.Cut(extensions, "\n"+ext+" ")
	if !found {
		return unknownMIME
	}
	mime, _, _ := strings.Cut(rest, "\n")
	return mime
}

func byExtension(name, reason, detail string) Result {
	return Result{
		MIME:         ByExtension(name),
		Method:       "extension",
		IdentifiedBy: ByExtensionMap,
		Reason:       reason,
		Detail:       detail,
	}
}

// An answer is what a child found out about a file.
type answer struct {
	Matches []match `json:"matches"`
	Error   string  `json:"error"`
}

// A match is a Siegfried identification; the fields are its labels.
type match struct {
	ID      string `json:"id"`
	Format  string `json:"format"`
	MIME    string `json:"mime"`
	Basis   string `json:"basis"`
	Warning string `json:"warning"`
}

// choose makes a Result of an answer: the first match with a MIME type, or
// else the extension's type with the identifier of the first match.
func choose(name string, a answer) Result {
	if a.Error == "" {
		for _, m := range a.Matches {
			// PRONOM lists alternatives behind a comma, the preferred one first
			mime, _, _ := strings.Cut(m.MIME, ",")
			if mime = strings.TrimSpace(mime); mime != "" {
				return Result{
					MIME: mime, PUID: m.puid(), Name: m.Format,
					Method: method(m.Basis), IdentifiedBy: BySiegfried, Warning: m.Warning,
				}
			}
		}
	}
	r := byExtension(name, Unknown, "")
	if a.Error != "" {
		r.Reason, r.Detail = Refused, a.Error
	}
	if len(a.Matches) > 0 {
		m := a.Matches[0]
		r.PUID, r.Name, r.Warning = m.puid(), m.Format, m.Warning
	}
	return r
}

func (m match) puid() string {
	if m.ID == "UNKNOWN" {
		return ""
	}
	return m.ID
}

// method puts Siegfried's basis, a list of phrases such as "extension match
// pdf; byte match at 0, 8", into one of the three words that are stored.
func method(basis string) string {
	switch {
	case strings.Contains(basis, "container "):
		return "container"
	case strings.Contains(basis, "byte match"), strings.Contains(basis, "xml match"),
		strings.Contains(basis, "riff match"), strings.Contains(basis, "text match"):
		return "signature"
	default:
		return "extension"
	}
}
