package inventory

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/inventory/inventorytest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// destination is a bucket of the test's own for reports about the bucket "copies".
type destination struct {
	Source
	t *testing.T
}

func newDestination(t *testing.T) *destination {
	t.Helper()
	s := testenv.S3(t)
	client := storage.NewClient(storage.Options{Patience: 1})
	t.Cleanup(client.Close)
	b := must.Get(client.Bucket(storage.Target{
		Bucket: s.Prefix + "reports", Endpoint: s.Endpoint, Region: s.Region, CAFile: s.CAFile, PathStyle: true,
		AccessKeyID: s.AccessKeyID, SecretAccessKey: storage.Secret(s.SecretAccessKey),
	}))(t)
	must.Do(t, b.Create(t.Context()))
	return &destination{Source{b, "daily/copies/farol/", "FAROL_TARGET_STANDARD_VA_INVENTORY"}, t}
}

// report is one of so many hours ago.
func (d *destination) report(hours int, rows ...inventorytest.Row) inventorytest.Report {
	return inventorytest.Report{
		Source: "copies", Destination: d.Bucket.Name(), Folder: d.Folder, Taken: time.Now().Add(-time.Duration(hours) * time.Hour), Files: 3, Rows: rows,
	}
}

func (d *destination) put(objects map[string][]byte) {
	d.t.Helper()
	for key, content := range objects {
		must.Get(d.Bucket.Put(d.t.Context(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))}))(d.t)
	}
}

// read returns the objects of the newest report, each as a line.
func (d *destination) read() (lines []string, err error) {
	r, err := d.Newest(d.t.Context(), "copies")
	if err != nil {
		return nil, err
	}
	for o, err := range r.Objects(d.t.Context()) {
		if err != nil {
			return lines, err
		}
		lines = append(lines, fmt.Sprint(o.Key, " ", o.Size))
	}
	return lines, nil
}

// The newest complete report counts: current objects only, by the bytes of their keys. An
// incomplete one, which S3 is still writing, is passed over.
func TestNewestCompleteReportIsReadInOrder(t *testing.T) {
	t.Parallel()
	d := newDestination(t)
	d.put(d.report(50, inventorytest.Row{Key: "of the day before"}).Objects(nil))
	r := d.report(26,
		inventorytest.Row{Key: "z", Size: 1}, inventorytest.Row{Key: "a b+c%/ü&\"", Size: 2}, inventorytest.Row{Key: "Z", Size: 3},
		inventorytest.Row{Key: "old", Old: true, Size: 4}, inventorytest.Row{Key: "gone", Marker: true}, inventorytest.Row{Key: "a", Size: 0},
		inventorytest.Row{Key: "é", Size: 1 << 40})
	r.Versions = true
	d.put(r.Objects(nil))
	for hours, missing := range map[int]string{2: "manifest.json", 3: "manifest.checksum"} {
		incomplete := d.report(hours, inventorytest.Row{Key: "of today"})
		objects := incomplete.Objects(nil)
		delete(objects, incomplete.Dated()+missing)
		d.put(objects)
	}
	lines, err := d.read()
	want := []string{"Z 3", "a 0", "a b+c%/ü&\" 2", "z 1", "é 1099511627776"}
	if !slices.Equal(lines, want) || err != nil {
		t.Errorf("objects %q, %v; want %q", lines, err, want)
	}
	if got, _ := d.Newest(t.Context(), "copies"); got == nil || !got.Taken.Equal(r.Taken.UTC().Truncate(time.Minute)) || got.Manifest != r.Dated()+"manifest.json" {
		t.Errorf("the report is %+v", got)
	}
}

// Whatever is wrong with a report is said, with the setting and the next step, before an object
// is yielded; and no earlier report takes its place.
func TestWrongReportIsRefused(t *testing.T) {
	t.Parallel()
	const manifest, first = "manifest.json", "-0.csv.gz"
	set := func(name string, value any) func(map[string]any) {
		return func(m map[string]any) { m[name] = value }
	}
	row := func(cells ...string) string { return `"` + strings.Join(cells, `","`) + "\"\n" }
	for name, tc := range map[string]struct {
		hours  int                           // of age; 1 if 0
		change func(manifest map[string]any) // with a checksum that is right
		spoil  string                        // the end of the key of the object that is changed
		to     func(content []byte) []byte   // nil: it is removed
		first  string                        // content of the first file, under a manifest that fits
		want   string
	}{
		"too old":               {hours: 8*24 + 1, want: "more than 8 days is not used: check that S3 still writes it, or unset FAROL_TARGET_STANDARD_VA_INVENTORY"},
		"of the future":         {hours: -3, want: "check the clock"},
		"wrong checksum":        {spoil: manifest, to: func(c []byte) []byte { return append(c, ' ') }, want: "is not that in manifest.checksum"},
		"no JSON":               {spoil: manifest, to: func([]byte) []byte { return []byte("{") }, want: "is not that in manifest.checksum"},
		"Parquet":               {change: set("fileFormat", "Parquet"), want: "set the output format of the inventory configuration to CSV"},
		"ORC":                   {change: set("fileFormat", "ORC"), want: "set the output format"},
		"another bucket":        {change: set("sourceBucket", "others"), want: `it is about the bucket "others"`},
		"another destination":   {change: set("destinationBucket", "arn:aws:s3:::elsewhere"), want: `written for the bucket "elsewhere"`},
		"no keys":               {change: set("fileSchema", "Bucket, Size"), want: "lacks Bucket or Key"},
		"a column twice":        {change: set("fileSchema", "Bucket, Key, Key"), want: "or one twice"},
		"too many columns":      {change: set("fileSchema", "Bucket, Key"+strings.Repeat(", x", 200)), want: "too many columns"},
		"versions":              {change: set("fileSchema", "Bucket, Key, VersionId, Size, a, b"), want: "set the inventory configuration to current versions only"},
		"a number for a text":   {change: set("sourceBucket", 7), want: "cannot unmarshal"},
		"no checksum of a file": {change: set("files", []map[string]any{{"key": "x", "size": 1}}), want: `file "x" has no valid size`},
		"a negative size":       {change: set("files", []map[string]any{{"key": "x", "size": -1, "MD5checksum": strings.Repeat("0", 32)}}), want: `file "x" has no valid size`},
		"a file is missing":     {spoil: first, want: "-0.csv.gz"},
		"a file is truncated":   {spoil: first, to: func(c []byte) []byte { return c[:len(c)-9] }, want: "-0.csv.gz"},
		"a checksum of another file": {change: func(m map[string]any) {
			m["files"].([]map[string]any)[0]["MD5checksum"] = strings.Repeat("0", 32)
		}, want: "as the manifest says"},
		"a file is longer": {spoil: first, to: func(c []byte) []byte { return append(c, c...) }, want: ""},
		"a file is another": {spoil: first, to: func(c []byte) []byte { // as long as the right one
			c = slices.Clone(c)
			c[len(c)-9] ^= 1
			return c
		}, want: "-0.csv.gz"},
		"a row of another bucket": {first: row("others", "a", "1", "", "", ""), want: `line 1: it is about the bucket "others"`},
		"a column is missing":     {first: row("copies", "a", "1"), want: "wrong number of fields"},
		"a bad escape":            {first: row("copies", "a%zz", "1", "", "", ""), want: "line 1: invalid URL escape"},
		"no UTF-8":                {first: row("copies", "a%ff", "1", "", "", ""), want: "is no key"},
		"a zero byte":             {first: row("copies", "a%00", "1", "", "", ""), want: "is no key"},
		"an empty key":            {first: row("copies", "", "1", "", "", ""), want: "is no key"},
		"a long key":              {first: row("copies", strings.Repeat("k", 1025), "1", "", "", ""), want: "is no key"},
		"a size of words":         {first: row("copies", "a", "many", "", "", ""), want: `"many" is no size`},
		"a size below 0":          {first: row("copies", "a", "-1", "", "", ""), want: `"-1" is no size`},
		"a long row":              {first: row("copies", "a", "1", strings.Repeat("x", 64<<10), "", ""), want: "a row has more than"},
		"blank lines":             {first: strings.Repeat("\n", 1<<20), want: "a row has more than"},
		"a bomb":                  {first: strings.Repeat(row("copies", "a", "1", "", "", ""), 400_000), want: "it grows more than 300 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDestination(t)
			d.put(d.report(max(tc.hours, 1)+1, inventorytest.Row{Key: "of the day before"}).Objects(nil))
			rows := []inventorytest.Row{{Key: "a", Size: 1}, {Key: "b", Size: 2}, {Key: "c", Size: 3}}
			r := d.report(1, rows...)
			if tc.hours != 0 {
				r = d.report(tc.hours, rows...)
			}
			change := tc.change
			key := fmt.Sprintf("%sdata/%d%s", r.Folder, r.Taken.Unix(), first)
			content := inventorytest.Zip(tc.first)
			if tc.first != "" {
				change = func(m map[string]any) { m["files"] = []map[string]any{inventorytest.File(key, content)} }
			}
			objects := r.Objects(change)
			if tc.first != "" {
				objects[key] = content
			}
			for key := range maps.Clone(objects) {
				switch {
				case tc.spoil == "" || !strings.HasSuffix(key, tc.spoil):
				case tc.to == nil:
					delete(objects, key)
				default:
					objects[key] = tc.to(objects[key])
				}
			}
			d.put(objects)
			lines, err := d.read()
			if tc.want == "" { // the bytes that the manifest names are there
				if err != nil || len(lines) != 3 {
					t.Errorf("objects %q, %v", lines, err)
				}
				return
			}
			if err == nil || len(lines) > 0 || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), d.Setting) {
				t.Errorf("objects %q, error %v; want %q", lines, err, tc.want)
			}
		})
	}
}

// A folder above or below the right one has no reports, and the error says which one has.
func TestWrongFolderIsSaid(t *testing.T) {
	t.Parallel()
	d := newDestination(t)
	d.put(d.report(1, inventorytest.Row{Key: "a"}).Objects(nil))
	for _, folder := range []string{"daily/copies/", "daily/", "elsewhere/", "daily/copies/farol/data/"} {
		d.Folder = folder
		if _, err := d.Newest(t.Context(), "copies"); err == nil || !strings.Contains(err.Error(), "set FAROL_TARGET_STANDARD_VA_INVENTORY to the folder that has those of the dates, BUCKET/PREFIX/copies/CONFIGURATION") {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// Any number of objects comes out once each, in order, whatever fits into memory; and nothing is
// left on disk.
func TestSortedObjectsAreThoseThatWereAdded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	rapid.Check(t, func(t *rapid.T) {
		s := &sorter{limit: rapid.IntRange(1, 400).Draw(t, "limit")}
		want := map[string]int64{}
		for _, key := range rapid.SliceOfN(rapid.OneOf(rapid.StringN(1, 20, 80), rapid.SampledFrom([]string{"a", "b", "ab"})), 0, 200).Draw(t, "keys") {
			if _, again := want[key]; !again {
				want[key] = rapid.Int64Min(-1).Draw(t, "size")
			}
			must.Do(t, s.add(key, want[key]))
		}
		last, n := "", 0
		for o, err := range s.sorted() {
			if size, known := want[o.Key]; err != nil || !known || size != o.Size || n > 0 && o.Key <= last {
				t.Fatalf("%q of %d bytes after %q, %v", o.Key, o.Size, last, err)
			}
			last, n = o.Key, n+1
		}
		s.close()
		if n != len(want) {
			t.Fatalf("%d objects of %d", n, len(want))
		}
		if left := must.Get(os.ReadDir(dir))(t); len(left) > 0 {
			t.Fatalf("left are %v", left)
		}
	})
}

// A disk that is full is said to be the reason, with the setting that names it.
func TestSortNeedsADisk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/absent")
	s := &sorter{limit: 1}
	if err := s.add("a", 1); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("add = %v", err)
	}
}

// A connection that breaks costs what was not read yet; one that never brings a byte is given up.
func TestBrokenConnectionIsResumed(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789", 100)
	opened, broken := 0, errors.New("broken")
	r := &resuming{size: int64(len(content)), open: func(offset int64) (io.ReadCloser, error) {
		opened++
		return io.NopCloser(io.MultiReader(io.LimitReader(strings.NewReader(content[offset:]), 130), iotest.ErrReader(broken))), nil
	}}
	if got, err := io.ReadAll(r); string(got) != content || err != nil || opened != 8 {
		t.Errorf("%d bytes by %d connections, %v", len(got), opened, err)
	}
	vain := &resuming{size: 5, open: func(int64) (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil }}
	if _, err := io.ReadAll(vain); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// No bytes make the reader panic, or hand on what is no key.
func FuzzRows(f *testing.F) {
	f.Add([]byte(`"copies","a%20b","true","1"`+"\n"+`"copies","c","false","2"`), true)
	f.Add([]byte("copies,\"a\nb\",true,\"\"\"\""), true)
	f.Add(inventorytest.Zip("copies,a,true,1"), false)
	f.Fuzz(func(t *testing.T, content []byte, zip bool) {
		if zip {
			content = inventorytest.Zip(string(content))
		}
		sum := md5.Sum(content)
		r := &Report{about: "copies", columns: columns{all: 4, bucket: 0, key: 1, latest: 2, size: 3, version: -1, marker: -1}}
		n := 0
		err := r.decode(bytes.NewReader(content), file{Size: int64(len(content)), MD5: hex.EncodeToString(sum[:])}, func(key string, size int64) error {
			if n++; key == "" || len(key) > mostKey || !utf8.ValidString(key) || size < -1 {
				t.Errorf("%q of %d bytes", key, size)
			}
			return nil
		})
		if zipped, bad := gzip.NewReader(bytes.NewReader(content)); bad == nil && err == nil {
			if text, _ := io.ReadAll(zipped); n > bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r"))+1 {
				t.Errorf("%d objects in %q", n, text)
			}
		}
	})
}

// No manifest makes the reader panic, or has it read a file without a checksum.
func FuzzSchema(f *testing.F) {
	f.Add("Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size")
	f.Add(",,")
	f.Fuzz(func(t *testing.T, schema string) {
		c, err := columnsOf(schema)
		if err == nil && (c.bucket < 0 || c.key < 0 || max(c.bucket, c.key, c.size, c.latest, c.marker) >= c.all) {
			t.Errorf("%q has %+v", schema, c)
		}
	})
}
