package main

import (
	_ "embed"
	"strings"
)

//go:embed codes.txt
var codesText string

// verdict is what can be said of a stable code.
type verdict struct {
	Code  string `json:"code"`
	Fault string `json:"fault"` // whose it is: see faults
	Means string `json:"means"`
	Todo  string `json:"to_do"`
}

// faults are those whose fault something can be, in words.
func faults() map[string]string {
	return map[string]string{
		"bag":       "the bag's",
		"depositor": "nobody's: the upload was replaced or removed",
		"storage":   "the system's, at the storage; the bag is not to blame as far as is known",
		"system":    "the system's; the bag is not to blame as far as is known",
		"person":    "nobody's: a person decided so",
		"nobody":    "nobody's",
		"unknown":   "not known",
	}
}

// verdictOn explains a code. Of one that another version wrote nothing is claimed.
func verdictOn(code string) verdict {
	if v, ok := verdicts()[code]; ok {
		return v
	}
	return verdict{
		Code: code, Fault: "unknown", Means: "This version of Farol does not know the code.",
		Todo: "Read the note and the errors above; `farol item show {id}` has all of them.",
	}
}

func verdicts() map[string]verdict {
	all := map[string]verdict{}
	for line := range strings.Lines(codesText) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) == 4 && !strings.HasPrefix(line, "#") {
			all[fields[0]] = verdict{fields[0], fields[1], fields[2], fields[3]}
		}
	}
	return all
}
