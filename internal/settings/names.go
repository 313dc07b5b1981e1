package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/storage"
)

// fileSuffix makes of the name of a secret that of a file with it, as container
// platforms and parameter stores hand out secrets.
const fileSuffix = "_FILE"

// ChildEnv says that a farol process was started by another one and ends
// with it: when its standard input closes, however the parent went.
const ChildEnv = "FAROL_CHILD"

// mostSecret is more than any secret has; what is larger is another file.
const mostSecret = 64 << 10

// SettingBlocks are all that any command reads from the environment.
func SettingBlocks() []any {
	return []any{
		&Database{}, &Redis{}, &S3{}, &Staging{}, &Keep{}, &NSQ{}, &Work{}, &Identify{}, &Virus{},
		&Janitor{}, &Profiles{}, &Bags{}, &Pools{}, &Fixity{}, &Repair{}, &Pull{}, &HTTP{},
		&Read{}, &Schedule{}, &Mail{}, &Web{}, &Site{}, &Remote{}, &Log{},
	}
}

// knownNames are the settings of all commands that begin with FAROL_, with those of
// other programs that are set next to them.
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
	}
	for _, f := range fields {
		known[f.Name], known[f.old] = true, true
		if f.fromFile() {
			known[f.Name+fileSuffix] = true
		}
	}
	maps.DeleteFunc(known, func(name string, _ bool) bool { return !strings.HasPrefix(name, "FAROL_") })
	return known
}

// platformName matches what Kubernetes and Docker set for a service called farol-…, what
// compose files set for ports, and what only tests and benchmarks read.
var platformName = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_\d+_(TCP|UDP)(_PROTO|_PORT|_ADDR)?$|^FAROL_(TEST|BENCH)_`)

// unknown notes names that no command reads: with a letter wrong, a setting would have
// its default without a warning.
func (s *Reader) unknown() {
	known := knownNames()
	names := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(s.environ)) {
		if !strings.HasPrefix(name, "FAROL_") || s.environ[name] == "" || known[name] || platformName.MatchString(name) || providerName.MatchString(name) {
			continue
		}
		s.wrong(name, "is not a setting of Farol; did you mean "+nearest(name, names))
	}
}

// nearest is the name with the fewest letters to change.
func nearest(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return human.Distance(name, a) - human.Distance(name, b) })
}

// fromFile reports whether a setting may be in a file: secrets, and the access keys that
// are handed out with them.
func (f Field) fromFile() bool {
	_, secret := f.Value.Interface().(storage.Secret)
	return secret || strings.HasSuffix(f.Name, "ACCESS_KEY_ID")
}

// readFiles puts the content of files where their names stand for secrets.
func (s *Reader) readFiles(fields []Field, environ map[string]string) {
	for _, f := range fields {
		name := f.Name + fileSuffix
		path := s.environ[name]
		if path == "" || !f.fromFile() {
			continue
		}
		if environ[f.Name] != "" {
			s.wrong(name, "is set, and so is "+f.Name+"; set only one of them")
			continue
		}
		text, err := readSecret(path)
		if err != nil {
			if !filepath.IsAbs(path) { // it may be the secret itself
				path = "***"
			}
			s.wrong(name, fmt.Sprintf("is %q, %v; it must be the path of a file with %s", path, err, f.allowed()))
			continue
		}
		environ[f.Name] = text
	}
}

// readSecret reads a file, without the end of its line.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", errors.New("which " + whyUnread(err))
	case !info.Mode().IsRegular():
		return "", errors.New("which is not a file")
	case info.Size() > mostSecret:
		return "", errors.New("which has more than " + human.Bytes(mostSecret))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", errors.New("which " + whyUnread(err))
	}
	if secret := strings.TrimRight(string(text), "\r\n"); secret != "" {
		return secret, nil
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
