package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes an OCI image for both machines, as the tar of a layout. It needs no
// daemon and no registry.
func (r *release) image(context.Context) error {
	path := r.path("oci.tar")
	if !r.wants(path) {
		return nil
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range systems() {
		if s.os != "linux" || !r.wants(r.program(s)) {
			continue
		}
		img, err := r.imageFor(s)
		if err != nil {
			return fmt.Errorf("image for %s: %w", s.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: s.os, Architecture: s.arch}}})
	}
	// A layout names images; ours has one, which is for several machines.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version}},
	})
	dir, err := os.MkdirTemp("", "farol-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system tidies what stays
	if _, err := layout.Write(dir, named); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.tar(f, dir), f.Close())
}

func (r *release) imageFor(s system) (v1.Image, error) {
	img, err := r.baseOf(s)
	if err != nil {
		return nil, err
	}
	files, err := r.layer(s)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "farol release"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = s.os, s.arch, v1.Time{Time: r.date}
	config.Config.User = "10001" // a number, so that an orchestrator sees that it is not root
	config.Config.Entrypoint, config.Config.Cmd = []string{"farol"}, []string{"--help"}
	config.Config.Env = append(config.Config.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source": "https://github.com/farol-preservation/farol",
	}
	return mutate.ConfigFile(img, config)
}

// baseOf is the image to build upon: nothing, or the one in a layout that has the digest
// that the caller pins.
func (r *release) baseOf(s system) (v1.Image, error) {
	if r.base == "" {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	folder, pin, found := strings.Cut(r.base, "@")
	digest, err := v1.NewHash(pin)
	if !found || err != nil {
		return nil, fmt.Errorf("-base %q must be FOLDER@sha256:DIGEST", r.base)
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	img, err := imageIn(index, s, &digest)
	if err == nil && img == nil {
		err = fmt.Errorf("%s has no image %s for %s/%s", folder, pin, s.os, s.arch)
	}
	return img, err
}

// imageIn finds the image of a machine in an index, below the entry with a digest, if
// one is given.
func imageIn(index v1.ImageIndex, s system, pin *v1.Hash) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		switch {
		case pin != nil && d.Digest != *pin:
		case d.MediaType.IsIndex():
			below, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			return imageIn(below, s, nil)
		default:
			img, err := index.Image(d.Digest)
			if err != nil {
				return nil, err
			}
			config, err := img.ConfigFile()
			if err != nil || config.OS == s.os && config.Architecture == s.arch {
				return img, err
			}
		}
	}
	return nil, nil //nolint:nilnil // there is none, which the caller says better
}

// layer is the tar of Farol's files. What a base would bring is there only without one:
// the certificates that S3 and mail need, a user, and a folder for temporary files.
func (r *release) layer(s system) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, mode int64, content []byte) error {
		h := &tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: r.date, Format: tar.FormatPAX}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		return errors.Join(w.WriteHeader(h), second(w.Write(content)))
	}
	if r.base == "" {
		var certificates bytes.Buffer
		for root := range bundle.Roots() {
			if root.Constraint != nil {
				continue // which a file cannot express
			}
			if err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
		err := errors.Join(add("tmp/", 0o1777, nil), add("etc/passwd", 0o644, []byte("farol:x:10001:10001::/:/none\n")),
			add("etc/ssl/certs/ca-certificates.crt", 0o644, certificates.Bytes()))
		if err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		from, to string
		mode     int64
	}{
		{r.program(s), "usr/local/bin/farol", 0o755},
		{filepath.Join(r.src, "LICENSE"), "usr/share/doc/farol/LICENSE", 0o644},
		{filepath.Join(r.src, "THIRD_PARTY_NOTICES"), "usr/share/doc/farol/THIRD_PARTY_NOTICES", 0o644},
	} {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		if err := add(f.to, f.mode, content); err != nil {
			return nil, err
		}
	}
	err := w.Close() // which writes the end of the tar
	return out.Bytes(), err
}

func second[T any](_ T, err error) error { return err }

// tar writes a folder as a tar that says nothing of who wrote it.
func (r *release) tar(to io.Writer, dir string) error {
	w, files := tar.NewWriter(to), os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: r.date, Format: tar.FormatPAX}
		return errors.Join(w.WriteHeader(h), second(w.Write(content)))
	})
	return errors.Join(err, w.Close())
}
