package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/storage"
)

// fileSuffix makes of the name of a setting that of a file with its value, as container
// platforms and parameter stores hand out secrets.
const fileSuffix = "_FILE"

// ChildEnv says that a farol process was started by another one and ends
// with it: when its standard input closes, however the parent went.
const ChildEnv = "FAROL_CHILD"

// mostInFile is more than any setting has; what is larger is another file.
const mostInFile = 64 << 10

// SettingBlocks are all that any command reads from the environment.
func SettingBlocks() []any {
	return []any{
		&Database{}, &Redis{}, &S3{}, &Staging{}, &Keep{}, &NSQ{}, &Work{}, &Identify{}, &Virus{},
		&Janitor{}, &Profiles{}, &Bags{}, &Pools{}, &Fixity{}, &Repair{}, &Pull{}, &HTTP{},
		&Read{}, &ScaleIn{}, &Schedule{}, &Mail{}, &Web{}, &Site{}, &Remote{}, &Log{}, &Traces{},
	}
}

// knownNames are the settings of all commands, with those of other programs that begin with
// FAROL_ and are set next to them.
func knownNames() map[string]bool {
	known := map[string]bool{
		ChildEnv: true, "FAROL_URL": true, // of our children, and of the clients in examples
	}
	for _, name := range strings.Fields("POSTGRES_PASSWORD SERVE_PASSWORD REDIS_PASSWORD S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY VERSION") { // deploy/env.example
		known["FAROL_"+name] = true
	}
	var fields []Field
	for _, block := range SettingBlocks() {
		fields = append(fields, FieldsOf("", block)...)
	}
	for _, t := range storage.Targets() {
		fields = append(fields, FieldsOf(TargetPrefix(t.Name), &Target{})...)
		known[t.EnvVar] = true
	}
	for _, f := range fields {
		known[f.Name], known[f.old] = true, true
	}
	for _, w := range OldWorkers() {
		for _, name := range w.names {
			for _, suffix := range oldSuffixes {
				known[name+suffix] = true
			}
		}
	}
	delete(known, "")
	return known
}

// platformName matches what Kubernetes and Docker set for a service called farol-…, what
// compose files set for ports, and what only tests and benchmarks read.
var platformName = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_\d+_(TCP|UDP)(_PROTO|_PORT|_ADDR)?$|^FAROL_(TEST|BENCH)_`)

// oldName matches what reads like a setting of the predecessor's workers. Other programs, and
// the predecessor itself, have more variables that begin so.
var oldName = regexp.MustCompile(`^(RE)?INGEST_.*_(WORKERS?|BUFFER_?SIZE|(MAX_)?ATTEMPTS?|TIMEOUT|LEASE)(_FILE)?$|^APT_.*_(WORKERS?|BUFFER_?SIZE|MAX_ATTEMPTS?)(_FILE)?$`)

// unknown notes names that no command reads although they look like a setting: with a letter
// wrong, the setting would have its default without a warning.
func (s *reader) unknown() {
	known := knownNames()
	names := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(s.environ)) {
		base := strings.TrimSuffix(name, fileSuffix)
		if s.environ[name] == "" || known[name] || known[base] || platformName.MatchString(name) || providerName.MatchString(name) {
			continue
		}
		upper := strings.ToUpper(name)
		sure := isForFarol(upper)
		near, letters := nearest(upper, names, sure)
		if other, n := nearest(strings.ToUpper(base), names, sure); n < letters {
			near, letters = other+fileSuffix, n
		}
		if sure || letters <= mostLetters && !strings.HasPrefix(upper, "AWS_") && !strings.HasPrefix(upper, "OTEL_") { // which other programs read, too
			s.wrong(name, "is not a setting of Farol; did you mean "+near)
		}
	}
}

// isForFarol reports whether a variable was meant for Farol by how its name begins.
func isForFarol(name string) bool {
	if strings.HasPrefix(name, "FAROL_") || oldName.MatchString(name) {
		return true
	}
	return slices.ContainsFunc(OldWorkers(), func(w oldWorker) bool {
		return slices.ContainsFunc(w.names, func(worker string) bool { return strings.HasPrefix(name, worker+"_") })
	})
}

// mostLetters is by how many letters other variables may differ from a setting and still be
// meant for it.
const mostLetters = 2

// nearest is the name with the fewest letters to change, and how many these are. Unless all are
// wanted, those that are too long or too short by more than [mostLetters] are not looked at:
// every start of a command compares all variables with all settings.
func nearest(name string, names []string, all bool) (near string, letters int) {
	letters = math.MaxInt
	for _, other := range names {
		if off := len(other) - len(name); !all && max(off, -off) > mostLetters {
			continue
		}
		if n := human.Distance(name, other); n < letters {
			near, letters = other, n
		}
	}
	return near, letters
}

// isSet reports whether a setting has a value, itself or in a file.
func (s *reader) isSet(name string) bool {
	return s.environ[name] != "" || s.environ[name+fileSuffix] != ""
}

// given returns the text of a setting, and the name of the variable that has it: the
// setting's own, or that of a file. allowed says what the setting may be.
func (s *reader) given(name, allowed string, secret bool) (text, from string) {
	path := s.environ[name+fileSuffix]
	switch {
	case path == "":
		return s.environ[name], name
	case s.environ[name] != "":
		s.wrong(name+fileSuffix, "is set, and so is "+name+"; set only one of them")
		return s.environ[name], name
	}
	text, err := readFile(path)
	if err != nil {
		if secret && !filepath.IsAbs(path) { // it may be the secret itself
			path = "***"
		}
		s.wrong(name+fileSuffix, fmt.Sprintf("is %q, %v; it must be the path of a file with %s", path, err, allowed))
	}
	return text, name + fileSuffix
}

// A file has the value of a secret; "" is a secret that was given itself.
type file string

// file is the one that has a setting.
func (s *reader) file(name string) file {
	if s.environ[name] != "" {
		return ""
	}
	return file(s.environ[name+fileSuffix])
}

// now is what the file says now: to replace a secret there, nothing is restarted. One that cannot be
// read, or is empty, is about to be replaced: then what it said at the start counts.
func (f file) now(otherwise storage.Secret) string {
	if f != "" {
		if text, err := readFile(string(f)); err == nil && text != "" {
			return text
		}
	}
	return string(otherwise)
}

// readFile reads a file, without the end of its last line.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", errors.New("which " + whyUnread(err))
	case !info.Mode().IsRegular():
		return "", errors.New("which is not a file")
	case info.Size() > mostInFile:
		return "", errors.New("which has more than " + human.Bytes(mostInFile))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", errors.New("which " + whyUnread(err))
	}
	if value := strings.TrimRight(string(text), "\r\n"); value != "" {
		return value, nil
	}
	return "", errors.New("which is empty")
}

// whyUnread says in words why a file could not be read.
func whyUnread(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not read"
	}
	return "cannot be read"
}
