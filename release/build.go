package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A system is one that programs are made for.
type system struct{ os, arch string }

func systems() (all []system) {
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, system{os, arch})
		}
	}
	return all
}

func (r *release) program(s system) string {
	suffix := ""
	if s.os == "windows" {
		suffix = ".exe"
	}
	return r.path("%s_%s%s", s.os, s.arch, suffix)
}

// programs builds farol for each system. Neither the folder nor the machine is in what
// comes out: no path (-trimpath), no C compiler, and none of the caller's settings.
func (r *release) programs(ctx context.Context) error {
	for _, s := range systems() {
		path, err := filepath.Abs(r.program(s))
		if err != nil {
			return err
		}
		if !r.wants(path) {
			continue
		}
		c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true",
			"-ldflags", "-s -w -X github.com/farol-preservation/farol/internal/process/build.version="+r.version, "-o", path, "./cmd/farol")
		c.Dir = r.src
		c.Env = append(c.Environ(), "CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("build for %s/%s: %w", s.os, s.arch, err)
		}
	}
	return nil
}

// A component is a module in CycloneDX's words.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
}

func module(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + url.PathEscape(version)
	return component{kind, purl, path, version, purl}
}

// boms writes beside each program the modules that it was linked from, as the program
// says itself, so that a scanner can tell which are known to be at fault.
func (r *release) boms(context.Context) error {
	for _, s := range systems() {
		if !r.wants(r.program(s)) {
			continue
		}
		info, err := buildinfo.ReadFile(r.program(s))
		if err != nil {
			return err
		}
		components := []component{module("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			components = append(components, module("library", d.Path, d.Version))
		}
		bom := map[string]any{
			"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
			"metadata":   map[string]any{"timestamp": r.date, "component": module("application", info.Main.Path, r.version)},
			"components": components,
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetIndent("", "  ")
		if err := e.Encode(bom); err != nil {
			return err
		}
		if err := os.WriteFile(r.program(s)+".cdx.json", text.Bytes(), 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	return nil
}
