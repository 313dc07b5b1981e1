// Package inventorytest writes the S3 Inventory of a bucket as S3 does.
package inventorytest

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Row is an object of the bucket, or an earlier version of one.
type Row struct {
	Key    string
	Size   int64
	Old    bool // it is not the newest version
	Marker bool // it is a delete marker
}

// A Report is an inventory of one date.
type Report struct {
	Source, Destination string // buckets
	Folder              string // with a slash at the end
	Taken               time.Time
	Files               int // into which the rows go, one after another; 1 if 0
	Versions            bool
	Rows                []Row
}

// Dated is the folder of the report, with a slash at the end.
func (r Report) Dated() string { return r.Folder + r.Taken.UTC().Format("2006-01-02T15-04Z") + "/" }

// Objects are what S3 writes, by their keys. change may change the manifest before its checksum
// is computed; it may be nil.
func (r Report) Objects(change func(manifest map[string]any)) map[string][]byte {
	schema := "Bucket, Key, Size, LastModifiedDate, ETag, StorageClass"
	if r.Versions {
		schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
	}
	objects := map[string][]byte{}
	parts := make([]strings.Builder, max(r.Files, 1))
	for i, row := range r.Rows {
		parts[i%len(parts)].WriteString(r.line(row))
	}
	files := []map[string]any{}
	for i := range parts {
		key := fmt.Sprintf("%sdata/%d-%d.csv.gz", r.Folder, r.Taken.Unix(), i)
		objects[key] = Zip(parts[i].String())
		files = append(files, File(key, objects[key]))
	}
	manifest := map[string]any{
		"sourceBucket": r.Source, "destinationBucket": "arn:aws:s3:::" + r.Destination, "version": "2016-11-30",
		"creationTimestamp": strconv.FormatInt(r.Taken.UnixMilli(), 10), "fileFormat": "CSV", "fileSchema": schema, "files": files,
	}
	if change != nil {
		change(manifest)
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	objects[r.Dated()+"manifest.json"], objects[r.Dated()+"manifest.checksum"] = text, []byte(sum(text)+"\n")
	objects[r.Folder+"hive/dt="+r.Taken.UTC().Format("2006-01-02-15-04")+"/symlink.txt"] = []byte("s3://…\n")
	return objects
}

func (r Report) line(row Row) string {
	cells := []string{r.Source, url.QueryEscape(row.Key)}
	if r.Versions {
		cells = append(cells, "v1", strconv.FormatBool(!row.Old), strconv.FormatBool(row.Marker))
	}
	size := strconv.FormatInt(row.Size, 10)
	if row.Marker {
		size = ""
	}
	cells = append(cells, size, "2026-11-20T00:00:00.000Z", sum([]byte(row.Key)), "STANDARD")
	return `"` + strings.Join(cells, `","`) + "\"\n"
}

// File is what a manifest says of a file.
func File(key string, content []byte) map[string]any {
	return map[string]any{"key": key, "size": len(content), "MD5checksum": sum(content)}
}

// Zip is a text as gzip.
func Zip(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // to memory
	_ = w.Close()
	return b.Bytes()
}

func sum(content []byte) string {
	s := md5.Sum(content)
	return hex.EncodeToString(s[:])
}
