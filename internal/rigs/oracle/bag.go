package oracle

import (
	"archive/tar"
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// A Bag is a tar as the oracle reads it.
type Bag struct {
	Institution string
	Bucket, Key string // where it was uploaded
	Name        string // without .tar
	Option      string // storage option
	Wrong       string // why it is no valid bag; "" if it is one
	Files       []File
	Manifests   []string // algorithms of the payload manifests
}

// A File is a file of a bag. Digests are in hex, by algorithm.
type File struct {
	Path    string
	Size    int64
	Digests map[string]string
}

// Object is the identifier of what the bag becomes.
func (b Bag) Object() string { return b.Institution + "/" + b.Name }

// Preserved are the files that must be kept: all but the declaration and the
// manifests.
func (b Bag) Preserved() (files []File) {
	for _, f := range b.Files {
		if f.Path != "bagit.txt" && !isManifest(f.Path, "manifest-") && !isManifest(f.Path, "tagmanifest-") {
			files = append(files, f)
		}
	}
	return files
}

func isPayload(path string) bool { return strings.HasPrefix(path, "data/") }

func isManifest(path, prefix string) bool {
	return strings.HasPrefix(path, prefix) && strings.HasSuffix(path, ".txt")
}

const maxText = 16 << 20 // bytes of a tag file or manifest

// ReadBag reads a tar and judges it by RFC 8493 and by what the APTrust profile
// asks of a title. A bag that is wrong is no error.
func ReadBag(path, institution, bucket, key string) (Bag, error) {
	name := strings.TrimSuffix(key, ".tar")
	b := Bag{Institution: institution, Bucket: bucket, Key: key, Name: name}
	f, err := os.Open(path)
	if err != nil {
		return b, fmt.Errorf("read bag %s: %w", key, err)
	}
	defer f.Close() //nolint:errcheck // only read
	texts := map[string]string{}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Wrong = "not a whole tar: " + err.Error()
			return b, nil
		}
		if h.Typeflag == tar.TypeDir {
			continue // it is nothing to keep
		}
		inside, ok := strings.CutPrefix(h.Name, name+"/")
		if !ok {
			b.Wrong = "entry outside of the bag's directory: " + h.Name
			return b, nil
		}
		file, text, err := readFile(inside, r)
		if err != nil {
			b.Wrong = "not a whole tar: " + err.Error()
			return b, nil
		}
		b.Files = append(b.Files, file)
		texts[inside] = text
	}
	b.Wrong = b.judge(texts)
	b.Option = tag(texts["aptrust-info.txt"], "Storage-Option")
	return b, nil
}

// readFile reads a file's digests, and its text unless it is payload.
func readFile(path string, r io.Reader) (File, string, error) {
	hashes := map[string]hash.Hash{"md5": md5.New(), "sha1": sha1.New(), "sha256": sha256.New(), "sha512": sha512.New()}
	writers := []io.Writer{}
	for _, h := range hashes {
		writers = append(writers, h)
	}
	var text bytes.Buffer
	if !isPayload(path) {
		writers = append(writers, &text)
		r = io.LimitReader(r, maxText)
	}
	n, err := io.Copy(io.MultiWriter(writers...), r)
	if err != nil {
		return File{}, "", fmt.Errorf("read %s: %w", path, err)
	}
	f := File{Path: path, Size: n, Digests: map[string]string{}}
	for name, h := range hashes {
		f.Digests[name] = hex.EncodeToString(h.Sum(nil))
	}
	return f, text.String(), nil
}

// judge returns why the bag is not valid.
func (b *Bag) judge(texts map[string]string) string {
	files := map[string]File{}
	for _, f := range b.Files {
		files[f.Path] = f
	}
	if !strings.HasPrefix(texts["bagit.txt"], "BagIt-Version:") {
		return "no bagit.txt"
	}
	for path, text := range texts {
		algorithm, isPayloads := strings.CutPrefix(strings.TrimSuffix(path, ".txt"), "manifest-")
		if !isManifest(path, "manifest-") {
			isPayloads = false
			algorithm = strings.TrimPrefix(strings.TrimSuffix(path, ".txt"), "tagmanifest-")
			if !isManifest(path, "tagmanifest-") {
				continue
			}
		}
		listed, wrong := compare(text, algorithm, files)
		if wrong != "" {
			return path + ": " + wrong
		}
		if !isPayloads {
			continue
		}
		b.Manifests = append(b.Manifests, algorithm)
		for p := range files {
			if isPayload(p) && !listed[p] {
				return path + " does not list " + p
			}
		}
	}
	if len(b.Manifests) == 0 {
		return "no payload manifest"
	}
	if tag(texts["aptrust-info.txt"], "Title") == "" {
		return "no Title"
	}
	return ""
}

// compare compares a manifest with the files. Three characters of names are encoded there.
func compare(manifest, algorithm string, files map[string]File) (listed map[string]bool, wrong string) {
	listed = map[string]bool{}
	unescaped := strings.NewReplacer("%25", "%", "%0A", "\n", "%0D", "\r")
	for line := range strings.Lines(manifest) {
		digest, path, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "  ")
		if !ok {
			return listed, "no manifest line: " + line
		}
		path = unescaped.Replace(path)
		f, there := files[path]
		switch {
		case !there:
			return listed, "missing file " + path
		case f.Digests[algorithm] != digest:
			return listed, "wrong digest of " + path
		}
		listed[path] = true
	}
	return listed, ""
}

func tag(text, name string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
