package explain

import (
	_ "embed"
	"strings"
)

//go:embed codes.txt
var codesText string

// A Verdict is what a stable error code means.
type Verdict struct {
	Code  string `json:"code"`
	Fault string `json:"fault"` // whose it is, a key of [Faults]
	Means string `json:"means"`
	Todo  string `json:"to_do"`
}

// Faults are those whose fault something can be, in words.
func Faults() map[string]string {
	return map[string]string{
		"bag":       "the bag's",
		"depositor": "nobody's: the upload was replaced or removed",
		"storage":   "the system's, at the storage; the bag is not to blame as far as is known",
		"system":    "the system's; the bag is not to blame as far as is known",
		"person":    "nobody's: a person decided this",
		"nobody":    "nobody's",
		"unknown":   "not known",
	}
}

// VerdictOn explains a code. One that another version wrote is unknown.
func VerdictOn(code string) Verdict {
	if v, ok := Verdicts()[code]; ok {
		return v
	}
	return Verdict{
		Code: code, Fault: "unknown", Means: "This version of Farol does not know the code.",
		Todo: "Read the note and the errors above; `farol item show {id}` has all of them.",
	}
}

// Verdicts are those on all codes that this version knows, by code.
func Verdicts() map[string]Verdict {
	all := map[string]Verdict{}
	for line := range strings.Lines(codesText) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) == 4 && !strings.HasPrefix(line, "#") {
			all[fields[0]] = Verdict{fields[0], fields[1], fields[2], fields[3]}
		}
	}
	return all
}
