package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// imageOf unpacks the layout of an image and finds that of a machine in it.
func imageOf(t testing.TB, path string, s system) v1.Image {
	t.Helper()
	dir := t.TempDir()
	command(t, dir, "tar", "-xf", path)
	img := get(imageIn(get(layout.ImageIndexFromPath(dir))(t), s, nil))(t)
	if img == nil {
		t.Fatalf("%s has no image for %v", path, s)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return img
}

func filesOf(t testing.TB, img v1.Image) map[string]string {
	t.Helper()
	all := mutate.Extract(img)
	defer all.Close()
	files := map[string]string{}
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(get(io.ReadAll(r))(t))
	}
}

// The image has the program, what it needs of a system, and nothing that runs as root.
func TestImage(t *testing.T) {
	r := released(t)
	img := imageOf(t, filepath.Join(r.out, "farol_1.2.3_oci.tar"), system{"linux", "amd64"})
	config := get(img.ConfigFile())(t)
	if c := config.Config; c.User != "10001" || strings.Join(c.Entrypoint, " ") != "farol" || c.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("the image is set to %+v", c)
	}
	files := filesOf(t, img)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(files["etc/ssl/certs/ca-certificates.crt"])) || strings.Count(files["etc/ssl/certs/ca-certificates.crt"], "BEGIN") < 100 {
		t.Error("the image has no certificates, or few")
	}
	if _, ok := files["tmp"]; !ok {
		t.Error("the image has no folder for temporary files")
	}
	root := emptySystem(t)
	write(t, filepath.Join(root, "farol"), files["usr/local/bin/farol"])
	command(t, "", "chmod", "755", filepath.Join(root, "farol"))
	if got := command(t, "", "chroot", "--userspec=10001:10001", root, "/farol", "version"); !strings.HasPrefix(got, "farol v1.2.3 ") {
		t.Errorf("the image's program prints %q", got)
	}
}

// A base is found by its digest, and no other is taken for it.
func TestImageOnBase(t *testing.T) {
	r := released(t)
	s := system{"linux", "amd64"}
	base := get(random.Image(100, 2))(t)
	config := get(base.ConfigFile())(t).DeepCopy()
	config.OS, config.Architecture, config.Config.Env = s.os, s.arch, []string{"OF=the base"}
	base = get(mutate.ConfigFile(base, config))(t)
	dir := t.TempDir()
	get(layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: base})))(t)
	of := release{version: "v1.2.3", src: r.src, out: r.out, base: dir + "@" + get(base.Digest())(t).String()}
	img := get(of.imageFor(s))(t)
	if got := get(img.Layers())(t); len(got) != 3 {
		t.Errorf("the image has %d layers, want two of the base and ours", len(got))
	}
	if env := get(img.ConfigFile())(t).Config.Env; env[0] != "OF=the base" {
		t.Errorf("the image has lost the base's %q", env)
	}
	files := filesOf(t, img)
	if _, ok := files["etc/ssl/certs/ca-certificates.crt"]; ok || files["usr/local/bin/farol"] == "" {
		t.Error("the certificates are not the base's, or there is no program")
	}
	for base, why := range map[string]string{
		dir: "must be FOLDER@sha256:DIGEST", dir + "@sha256:" + strings.Repeat("0", 64): "has no image sha256:000",
	} {
		of.base = base
		if _, err := of.imageFor(s); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("base %s: %v, want %q", base, err, why)
		}
	}
}
