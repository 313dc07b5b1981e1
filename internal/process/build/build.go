// Package build says which Farol this is.
package build

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-X …/internal/process/build.version=v1.2.3) and by nothing else.
var version string

// Info is a build of Farol.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources, "+" behind it if they were changed
	Go       string `json:"go"`
}

// This is the build that runs.
func This() Info {
	b := Info{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	changed := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+"
			}
		}
	}
	if b.Revision != "" {
		b.Revision += changed
	}
	b.Version = cmp.Or(b.Version, info.Main.Version, "(devel)")
	return b
}

// Text describes a build for people.
func (b Info) Text() string {
	revision := ""
	if b.Revision != "" {
		revision = ", revision " + b.Revision
	}
	return fmt.Sprintf("%s (%s%s)", b.Version, b.Go, revision)
}
