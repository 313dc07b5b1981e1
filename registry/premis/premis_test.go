package premis

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// premisChildren are the children of each element that we write, in the order of
// the sequences of premis-v3-0.xsd. "!" is one that must be there, "*" one that may
// come several times, "+" both. Children that we do not write are left out.
func premisChildren() map[string]string {
	return map[string]string{
		"premis":                    "object+ event* agent*",
		"premis:intellectualEntity": "objectIdentifier+ significantProperties* originalName",
		"premis:file":               "objectIdentifier+ significantProperties* objectCharacteristics+ originalName storage* relationship*",
		"objectIdentifier":          "objectIdentifierType! objectIdentifierValue!",
		"significantProperties":     "significantPropertiesType! significantPropertiesValue",
		"objectCharacteristics":     "compositionLevel fixity* size format+",
		"fixity":                    "messageDigestAlgorithm! messageDigest! messageDigestOriginator",
		"format":                    "formatDesignation! formatRegistry formatNote*",
		"formatDesignation":         "formatName! formatVersion",
		"formatRegistry":            "formatRegistryName! formatRegistryKey! formatRegistryRole",
		"storage":                   "contentLocation! storageMedium",
		"contentLocation":           "contentLocationType! contentLocationValue!",
		"relationship":              "relationshipType! relationshipSubType! relatedObjectIdentifier+",
		"relatedObjectIdentifier":   "relatedObjectIdentifierType! relatedObjectIdentifierValue!",
		"event":                     "eventIdentifier! eventType! eventDateTime! eventDetailInformation* eventOutcomeInformation* linkingAgentIdentifier* linkingObjectIdentifier*",
		"eventIdentifier":           "eventIdentifierType! eventIdentifierValue!",
		"eventDetailInformation":    "eventDetail",
		"eventOutcomeInformation":   "eventOutcome eventOutcomeDetail*",
		"eventOutcomeDetail":        "eventOutcomeDetailNote!",
		"linkingAgentIdentifier":    "linkingAgentIdentifierType! linkingAgentIdentifierValue! linkingAgentRole*",
		"linkingObjectIdentifier":   "linkingObjectIdentifierType! linkingObjectIdentifierValue! linkingObjectRole*",
		"agent":                     "agentIdentifier+ agentName* agentType agentVersion agentNote*",
		"agentIdentifier":           "agentIdentifierType! agentIdentifierValue!",
	}
}

// premisNode is an element of a document that was read back.
type premisNode struct {
	XMLName  xml.Name
	Type     string       `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	Version  string       `xml:"version,attr"`
	Children []premisNode `xml:",any"`
	Text     string       `xml:",chardata"`
}

// check fails the test unless the element and all below it are as the schema has them.
func (n premisNode) check(t *testing.T) {
	t.Helper()
	kind := n.XMLName.Local
	if n.Type != "" {
		kind = n.Type
	}
	if n.XMLName.Space != namespace {
		t.Errorf("%s is in the namespace %q", kind, n.XMLName.Space)
	}
	rule, hasChildren := premisChildren()[kind]
	if !hasChildren {
		if len(n.Children) > 0 {
			t.Errorf("%s has children, which this test does not know", kind)
		}
		return
	}
	rest := n.Children
	for child := range strings.FieldsSeq(rule) {
		name := strings.TrimRight(child, "!*+")
		found := 0
		for len(rest) > 0 && rest[0].XMLName.Local == name {
			rest[0].check(t)
			found, rest = found+1, rest[1:]
		}
		if mark := child[len(name):]; found == 0 && (mark == "!" || mark == "+") || found > 1 && mark != "*" && mark != "+" {
			t.Errorf("%s has %d × %s", kind, found, name)
		}
	}
	if len(rest) > 0 {
		t.Errorf("%s: %s is out of place", kind, rest[0].XMLName.Local)
	}
}

// all returns the texts of the elements of a name.
func (n premisNode) all(name string) (texts []string) {
	if n.XMLName.Local == name {
		texts = append(texts, n.Text)
	}
	for _, c := range n.Children {
		texts = append(texts, c.all(name)...)
	}
	return texts
}

func premisFileRecord(n int) record.File {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := record.File{
		Identifier: fmt.Sprintf("test.edu/bag/data/%d.txt", n), Object: "test.edu/bag", UUID: fmt.Sprintf("%032d", n), Size: int64(n),
		FileFormat: "text/plain", FormatPUID: "x-fmt/111", FormatName: "Plain Text File",
	}
	for _, algorithm := range []string{"md5", "sha1", "sha256", "sha512"} {
		f.Digests = append(f.Digests, record.Digest{Algorithm: algorithm, Digest: "now" + algorithm, At: at, Present: true},
			record.Digest{Algorithm: algorithm, Digest: "old" + algorithm, At: at})
	}
	for _, target := range []string{"Standard-OR", "Standard-VA"} {
		f.Copies = append(f.Copies, record.FileCopy{Target: target, URL: "https://s3/" + target})
	}
	return f
}

func premisEventRecord(n int, about string) registry.LinkedEvent {
	return registry.LinkedEvent{About: about, Event: record.Event{
		Identifier: fmt.Sprint("event-", n), EventType: "ingestion", EventTypeURI: "http://id.loc.gov/vocabulary/preservation/eventType/ing",
		DateTime: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Detail: "Stored", Outcome: "Success", OutcomeDetail: "md5:0", Object: "Farol", Agent: "https://farol",
	}}
}

func listed[T any](list ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, x := range list {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// hostile are names that a depositor may give and XML cannot carry as they are.
const hostile = "a<b>&amp;\"'\x01\x1b[31m\t\n\r\x7f]]>\ufffe\u202e漢\U0001F4A9"

func premisDocument(t *testing.T, source Source) (text string, root premisNode) {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, Write(&b, source))
	if err := xml.Unmarshal(b.Bytes(), &root); err != nil {
		t.Fatalf("not well-formed: %v\n%s", err, b.String())
	}
	return b.String(), root
}

// The order of elements is the schema's, for whatever is and is not on record, and
// names come through, but for the characters that XML forbids.
func TestPREMISFollowsTheSchema(t *testing.T) {
	t.Parallel()
	odd, bare := premisFileRecord(1), record.File{Identifier: "test.edu/bag/x", Object: "test.edu/bag", FileFormat: "text/plain"}
	odd.Identifier, odd.FormatName, odd.FormatReason = "test.edu/bag/"+hostile, hostile, hostile
	event := premisEventRecord(1, odd.Identifier)
	event.OutcomeInformation, event.Detail, event.Object, event.EventType = hostile, hostile, hostile, hostile
	object := record.Object{Identifier: "test.edu/bag", BagName: "bag", Title: hostile, Description: hostile, Access: "institution", StorageOption: "Standard"}
	source := Source{&object, listed(odd, bare), listed(premisEventRecord(2, object.Identifier), event, premisEventRecord(3, odd.Identifier))}
	text, root := premisDocument(t, source)
	root.check(t)
	if root.Version != "3.0" || root.XMLName.Local != "premis" {
		t.Errorf("root %s, version %q", root.XMLName.Local, root.Version)
	}
	carried := strings.NewReplacer("\x01", "\ufffd", "\x1b", "\ufffd", "\ufffe", "\ufffd").Replace(hostile)
	for name, want := range map[string][]string{
		"significantPropertiesValue": {carried, carried, "institution", "Standard"},
		"messageDigest":              {"nowmd5", "nowsha1", "nowsha256", "nowsha512"},
		"formatRegistryKey":          {"x-fmt/111"},
		"storageMedium":              {"Standard-OR", "Standard-VA"},
		"eventIdentifierValue":       {"event-2", "event-1", "event-3"},
		"eventDateTime":              {"2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z"},
		"agentName":                  {"Farol", carried},
	} {
		if got := root.all(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	agents := root.all("agentIdentifierValue")
	for _, linked := range root.all("linkingAgentIdentifierValue") {
		if !slices.Contains(agents, linked) {
			t.Errorf("no agent %q", linked)
		}
	}
	if lint, err := exec.LookPath("xmllint"); err == nil {
		c := exec.CommandContext(t.Context(), lint, "--noout", "-")
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("xmllint: %v\n%s", err, out)
		}
	}
	_, alone := premisDocument(t, Source{nil, listed(premisFileRecord(7)), listed[registry.LinkedEvent]()})
	alone.check(t)
}

// Whatever a name is, the document is well-formed and in order.
func FuzzPREMISIsWellFormed(f *testing.F) {
	f.Add(hostile)
	f.Add("\xff\xc0\x80")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		file, event := premisFileRecord(1), premisEventRecord(1, name)
		file.Identifier, file.FileFormat, file.FormatPUID, event.Outcome, event.EventTypeURI = name, name, name, name, name
		_, root := premisDocument(t, Source{&record.Object{Identifier: name, Title: name}, listed(file), listed(event)})
		root.check(t)
	})
}

// An object's files go through one by one, however many there are, and a failure on
// the way leaves no document that looks whole.
func TestPREMISIsStreamed(t *testing.T) {
	t.Parallel()
	const files, ahead = 5000, 500 // the buffers hold fewer
	var read atomic.Int64
	broken := errors.New("the connection broke")
	many := func(yield func(record.File, error) bool) {
		for n := range files {
			if lead := int64(n) - read.Load(); lead > ahead {
				t.Errorf("%d files are in memory", lead)
				return
			}
			if !yield(premisFileRecord(n), nil) {
				return
			}
		}
	}
	events := func(yield func(registry.LinkedEvent, error) bool) {
		if yield(premisEventRecord(1, "test.edu/bag"), nil) {
			yield(registry.LinkedEvent{}, broken)
		}
	}
	in, out := io.Pipe()
	go func() { out.CloseWithError(Write(out, Source{nil, many, events})) }()
	decoder := xml.NewDecoder(in)
	for {
		token, err := decoder.RawToken()
		if err != nil {
			if !errors.Is(err, broken) {
				t.Errorf("ended with %v, want the failure", err)
			}
			break
		}
		if tag, ok := token.(xml.EndElement); ok && tag.Name.Local == "object" {
			read.Add(1)
		} else if ok && tag.Name.Local == "premis" {
			t.Error("a document that is cut looks whole")
		}
	}
	if n := read.Load(); n != files {
		t.Errorf("%d objects, want %d", n, files)
	}
}

// A document that several processes write, one after the other, is the one that a single
// process writes.
func TestPREMISCanBeResumed(t *testing.T) {
	t.Parallel()
	object, file := record.Object{Identifier: "test.edu/bag", Title: "A bag"}, premisFileRecord(1)
	first, last := premisEventRecord(1, object.Identifier), premisEventRecord(2, file.Identifier)
	last.Object = "Another"
	whole, _ := premisDocument(t, Source{&object, listed(file), listed(first, last)})
	var b bytes.Buffer
	d := Begin(&b)
	err := errors.Join(d.Object(object), d.File(file), d.Flush())
	d = Resume(&b, d.Agents())
	err = errors.Join(err, d.Event(first), d.Flush())
	d = Resume(&b, d.Agents())
	err = errors.Join(err, d.Event(last), d.Flush())
	if err = errors.Join(err, Resume(&b, d.Agents()).End()); err != nil || b.String() != whole {
		t.Errorf("%v:\n%s\nwant\n%s", err, b.String(), whole)
	}
}
