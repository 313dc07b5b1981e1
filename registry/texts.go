package registry

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A text is all that an event says, but for the facts that differ from file to file: a row
// of event_texts. Its sentences have places for them, see event_places in the migrations.
type text struct {
	N             int    `json:"n"`  // within the recording, from 1
	At            int    `json:"at"` // place of the event's time; 0: the time of the recording
	About         string `json:"about"`
	EventType     string `json:"event_type"`
	Detail        string `json:"detail"`
	Outcome       string `json:"outcome"`
	OutcomeDetail string `json:"outcome_detail"`
	Information   string `json:"outcome_information"`
	Object        string `json:"object"`
	Agent         string `json:"agent"`
}

// texts are what a recording says, each text once, and which of them files have: most files
// of a bag have the same ones, which are a kind.
type texts struct {
	agents  Agents
	numbers map[text]int
	list    []text
	kinds   map[string]int
	kindsOf []kind
}

type kind struct {
	Kind  int   `json:"kind"`
	Texts []int `json:"texts"`
}

// newTexts has the kind of an object, which is 0.
func newTexts(agents Agents) *texts {
	return &texts{agents: agents, numbers: map[text]int{}, kinds: map[string]int{}, kindsOf: []kind{{}}}
}

func (t *texts) number(s text) int {
	n, ok := t.numbers[s]
	if !ok {
		n = len(t.list) + 1
		t.numbers[s] = n
		s.N = n
		t.list = append(t.list, s)
	}
	return n
}

func (t *texts) kind(numbers []int) int {
	key := make([]byte, 0, 64)
	for _, n := range numbers {
		key = binary.AppendVarint(key, int64(n))
	}
	n, ok := t.kinds[string(key)]
	if !ok {
		n = len(t.kindsOf)
		t.kinds[string(key)] = n
		t.kindsOf = append(t.kindsOf, kind{n, numbers})
	}
	return n
}

// json are the texts and kinds as statements take them.
func (t *texts) json() (list, kinds string, err error) {
	a, err := json.Marshal(t.list)
	if err != nil {
		return "", "", err
	}
	b, err := json.Marshal(t.kindsOf)
	return string(a), string(b), err
}

// fileTexts collects what is said of one file.
type fileTexts struct {
	*texts

	file  FileRecord
	said  []int
	times []time.Time
	facts [][]byte // behind the four digests
}

// file counts the events of a file. The first says that it was given its identifier, which
// is left out for a file that has one.
func (t *texts) file(f FileRecord) (kind int, times []time.Time, facts [][]byte) {
	f.UUID = strings.ToLower(f.UUID)
	e := fileTexts{texts: t, file: f, times: []time.Time{f.DigestedAt}, facts: [][]byte{}}
	e.say(text{
		EventType: "identifier assignment", Detail: "Assigned new institution.bag/path identifier", OutcomeDetail: "%f",
		Information: "Assigned bag/filepath identifier", Object: t.agents.name.object, Agent: t.agents.name.agent,
	})
	for _, c := range f.Copies[:min(1, len(f.Copies))] {
		e.say(text{
			EventType: "identifier assignment", Detail: "Assigned new storage URL identifier", OutcomeDetail: e.address(c.URL),
			Information: "Assigned url identifier", Object: e.agents.copy.object, Agent: e.agents.copy.agent,
		})
	}
	e.digests()
	e.copies()
	e.format()
	e.virus()
	return t.kind(e.said), e.times, e.facts
}

func (e *fileTexts) say(s text) {
	s.About = "%f"
	if s.Outcome == "" {
		s.Outcome = "Success"
	}
	e.said = append(e.said, e.number(s))
}

// at is the place of a time; one that is not known is that of the recording.
func (e *fileTexts) at(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	e.times = append(e.times, t)
	return len(e.times)
}

// fact is the place of a text that differs from file to file.
func (e *fileTexts) fact(s string) string {
	e.facts = append(e.facts, []byte(s))
	return fmt.Sprintf("%%t%02d", len(e.facts)+len(e.file.digests()))
}

func (e *fileTexts) digests() {
	for _, entry := range e.file.Manifests {
		algorithm, digest, _ := strings.Cut(entry, ":")
		s := text{
			At: 1, EventType: "fixity check", Detail: "Fixity check against registered hash", Information: "Fixity matches",
			Object: "Go language crypto/" + algorithm, Agent: "http://golang.org/pkg/crypto/" + algorithm + "/",
		}
		for _, d := range e.file.digests() {
			if d.algorithm == algorithm && d.digest == digest {
				s.OutcomeDetail = d.place
			}
		}
		if s.OutcomeDetail == "" {
			s.OutcomeDetail = e.fact(entry)
		}
		e.say(s)
	}
	for _, d := range e.file.digests() {
		e.say(text{
			At: 1, EventType: "message digest calculation", Detail: "Calculated fixity value",
			OutcomeDetail: d.place, Information: "Calculated fixity value",
			Object: "Go language crypto/" + d.algorithm, Agent: "http://golang.org/pkg/crypto/" + d.algorithm + "/",
		})
	}
}

func (e *fileTexts) copies() {
	for i, c := range e.file.Copies {
		at := e.at(c.StoredAt)
		if i > 0 {
			e.say(text{
				At: at, EventType: "replication", Detail: "Copied to replication storage and assigned replication URL identifier", OutcomeDetail: e.address(c.URL),
				Information: "Replicated to secondary storage", Object: e.agents.copy.object, Agent: e.agents.copy.agent,
			})
			continue
		}
		how := e.agents.put.how
		if how == "" {
			how = "Stored, read back and verified by its SHA-256"
			switch c.VerifiedBy {
			case "sha256":
				how = "Stored and verified by its SHA-256"
			case "etag":
				how = "Stored and verified by its MD5"
			}
		}
		e.say(text{
			At: at, EventType: "ingestion", Detail: "Completed copy to preservation storage (%u)", OutcomeDetail: "md5:%h01",
			Information: escaped(how), Object: e.agents.put.object, Agent: e.agents.put.agent,
		})
	}
}

// address is the sentence of an address: what stands before the uuid is that of all
// copies in a bucket.
func (e *fileTexts) address(url string) string {
	before, behind, found := strings.Cut(url, "/"+e.file.UUID)
	switch {
	case !found || strings.Contains(before, e.file.UUID):
		return e.fact(url)
	case behind == "":
		return escaped(before) + "/%u"
	}
	return escaped(before) + "/%u" + e.fact(behind)
}

// format says what the function format_outcome of the database says, and what
// identification_failed.
func (e *fileTexts) format() {
	f := e.file.Format
	word, _, details := strings.Cut(f.Reason, ":")
	s := text{
		At: e.at(f.At), EventType: "format identification", Detail: "Identified file format",
		OutcomeDetail: escaped(f.outcome()), Information: escaped("Identified by " + f.IdentifiedBy),
		Object: f.SignatureVersion, Agent: "https://github.com/richardlehane/siegfried",
	}
	if slices.Contains([]string{"crashed", "timed out", "refused"}, word) {
		s.Outcome = "Failure"
	}
	if f.Reason != "" {
		s.Information = escaped(f.Reason)
	}
	if details {
		s.Information = e.fact(f.Reason)
	}
	if f.SignatureVersion == "" {
		s.Object, s.Agent = "Farol", farolURL
	}
	e.say(s)
}

func (f Format) outcome() string {
	puid := f.PUID
	if puid == "" {
		puid = "unknown"
	}
	said := "PUID " + puid + ", " + f.MIME
	if f.Name != "" {
		said += ", " + f.Name
	}
	if f.Method != "" {
		said += ", by " + f.Method
	}
	if word, _, _ := strings.Cut(f.Reason, ":"); word != "" {
		said += ", " + word
	}
	if f.SignatureVersion != "" {
		said += ", " + f.SignatureVersion
	}
	return said
}

func (e *fileTexts) virus() {
	v := e.file.Virus
	if v.Scanner == "" {
		return
	}
	s := text{
		At: e.at(v.At), EventType: "virus check", Detail: "Checked file for viruses", OutcomeDetail: "No virus found",
		Information: "Whole content scanned", Object: v.Scanner, Agent: "https://www.clamav.net",
	}
	if v.Unchecked != "" {
		s.Outcome, s.OutcomeDetail, s.Information = "Failure", "Not checked", e.fact(v.Unchecked)
	}
	e.say(s)
}

// object counts the events of the object, and returns the facts that they name. The first
// two are left out for an object that is on record.
func (t *texts) object(rec Recording, files int) [][]byte {
	a, v := t.agents.record, rec.Validation
	found := "Bag is valid"
	switch {
	case v.Warnings == 0:
	case v.Found == "":
		found = fmt.Sprintf("Bag is valid, warnings: %d", v.Warnings)
	default:
		found = "Bag is valid. " + v.Found
	}
	for _, s := range []text{
		{
			EventType: "creation", Detail: "Object created", OutcomeDetail: "Intellectual object created",
			Information: "Object created, files copied to preservation storage", Object: a.object, Agent: a.agent,
		},
		{
			EventType: "identifier assignment", Detail: "Assigned object identifier %t01", OutcomeDetail: "%t01",
			Information: "Institution domain + tar file name", Object: a.object, Agent: a.agent,
		},
		{
			At: 1, EventType: "validation", Detail: "Validated bag by its profile", OutcomeDetail: "%t02", Information: "%t03",
			Object: v.Software, Agent: farolURL,
		},
		{
			EventType: "ingestion", Detail: escaped(t.agents.upload.what), OutcomeDetail: "%t04 files copied", Information: escaped(t.agents.upload.how),
			Object: t.agents.upload.object, Agent: t.agents.upload.agent,
		},
		{
			EventType: "access assignment", Detail: "Assigned object access rights", OutcomeDetail: escaped(rec.Object.Access),
			Information: "Set access to " + escaped(rec.Object.Access), Object: a.object, Agent: a.agent,
		},
	} {
		s.About, s.Outcome = "%t01", "Success"
		t.kindsOf[0].Texts = append(t.kindsOf[0].Texts, t.number(s))
	}
	return [][]byte{[]byte(rec.Object.Identifier), []byte(v.By), []byte(found), fmt.Append(nil, files)}
}

// escaped is a text as a sentence without places.
func escaped(s string) string { return strings.ReplaceAll(s, "%", "%p") }
