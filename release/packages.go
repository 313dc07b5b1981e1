package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // writes .deb
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // writes .rpm
)

// packages writes a .deb and an .rpm for each machine that has systemd.
func (r *release) packages(context.Context) error {
	for _, s := range systems() {
		for _, form := range []string{"deb", "rpm"} {
			path := r.path("%s_%s.%s", s.os, s.arch, form)
			if s.os != "linux" || !r.wants(path) {
				continue
			}
			if err := r.pack(path, form, s); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(path), err)
			}
		}
	}
	return nil
}

func (r *release) pack(path, form string, s system) error {
	contents, err := r.contents(s)
	if err != nil {
		return err
	}
	here := filepath.Join(r.src, "release", "scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "farol", Arch: s.arch, Platform: s.os, Version: r.version, Section: "admin", Priority: "optional", MTime: r.date,
		Maintainer: "Farol maintainers", Homepage: "https://github.com/farol-preservation/farol", License: "Apache-2.0",
		Description: "Digital preservation pipeline\nIngests BagIt bags into preservation storage and preserves them.",
		Overridables: nfpm.Overridables{
			Contents: contents, Recommends: []string{"ca-certificates"},
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(here, "installed.sh"), PreRemove: filepath.Join(here, "remove.sh"), PostRemove: filepath.Join(here, "installed.sh")},
			RPM:     nfpm.RPM{BuildHost: "farol", Summary: "Digital preservation pipeline"},
		},
	})
	if err := nfpm.PrepareForPackager(info, form); err != nil {
		return err
	}
	packager, err := nfpm.Get(form)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, f), f.Close())
}

// contents are the files of a package. Its configuration has no secrets, and still is
// for root alone: it is where people would put them.
func (r *release) contents(s system) (files.Contents, error) {
	file := func(from, to, kind string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}}
	}
	at := func(name string) string { return filepath.Join(r.src, name) }
	list := files.Contents{
		file(r.program(s), "/usr/bin/farol", "", 0o755),
		file("", "/usr/share/doc/farol", files.TypeDir, 0o755),
		file("", "/usr/lib/systemd/system/farol-.service.d", files.TypeDir, 0o755),
		file("", "/etc/farol", files.TypeDir, 0o700),
		file("", "/etc/farol/credentials", files.TypeDir, 0o700),
		file(at("release/systemd/farol.env"), "/etc/farol/farol.env", files.TypeConfigNoReplace, 0o600),
		file(at("release/systemd/farol-.service.d.conf"), "/usr/lib/systemd/system/farol-.service.d/10-common.conf", "", 0o644),
	}
	units, err := filepath.Glob(at("release/systemd/*.service"))
	if err != nil {
		return nil, err
	}
	for _, unit := range units {
		list = append(list, file(unit, "/usr/lib/systemd/system/"+filepath.Base(unit), "", 0o644))
	}
	for _, page := range []string{"LICENSE", "THIRD_PARTY_NOTICES", "CHANGELOG.md", "docs/operators.md", "docs/configuration.md", "docs/upgrading.md"} {
		list = append(list, file(at(page), "/usr/share/doc/farol/"+strings.TrimPrefix(page, "docs/"), "", 0o644))
	}
	return list, nil
}
