package premis

import (
	"cmp"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// The entities of PREMIS 3 as premis-v3-0.xsd has them. The order of the fields is
// that of the schema's sequences, which it insists on.

type object struct {
	Identifiers     []objectID       `xml:"objectIdentifier"`
	Properties      []property       `xml:"significantProperties"`
	Characteristics *characteristics `xml:"objectCharacteristics"` // of a file
	OriginalName    string           `xml:"originalName,omitempty"`
	Storage         []stored         `xml:"storage"`
	Relationships   []relationship   `xml:"relationship"`
}

type objectID struct {
	Type  string `xml:"objectIdentifierType"`
	Value string `xml:"objectIdentifierValue"`
}

type property struct {
	Type  string `xml:"significantPropertiesType"`
	Value string `xml:"significantPropertiesValue"`
}

type characteristics struct {
	Level  int      `xml:"compositionLevel"`
	Fixity []fixity `xml:"fixity"`
	Size   int64    `xml:"size"`
	Format format   `xml:"format"`
}

type fixity struct {
	Algorithm  string `xml:"messageDigestAlgorithm"`
	Digest     string `xml:"messageDigest"`
	Originator string `xml:"messageDigestOriginator"`
}

type format struct {
	Name     string          `xml:"formatDesignation>formatName"`
	Registry *formatRegistry `xml:"formatRegistry"`
	Notes    []string        `xml:"formatNote"`
}

type formatRegistry struct {
	Name string `xml:"formatRegistryName"`
	Key  string `xml:"formatRegistryKey"`
}

type stored struct {
	LocationType string `xml:"contentLocation>contentLocationType"`
	Location     string `xml:"contentLocation>contentLocationValue"`
	Medium       string `xml:"storageMedium"`
}

type relationship struct {
	Type    string    `xml:"relationshipType"`
	SubType string    `xml:"relationshipSubType"`
	Object  relatedID `xml:"relatedObjectIdentifier"`
}

type relatedID struct {
	Type  string `xml:"relatedObjectIdentifierType"`
	Value string `xml:"relatedObjectIdentifierValue"`
}

type event struct {
	IdentifierType string       `xml:"eventIdentifier>eventIdentifierType"`
	Identifier     string       `xml:"eventIdentifier>eventIdentifierValue"`
	Type           term         `xml:"eventType"`
	At             string       `xml:"eventDateTime"`
	Detail         string       `xml:"eventDetailInformation>eventDetail"`
	Outcome        outcome      `xml:"eventOutcomeInformation"`
	Agent          linkedAgent  `xml:"linkingAgentIdentifier"`
	Object         linkedObject `xml:"linkingObjectIdentifier"`
}

type term struct {
	URI  string `xml:"valueURI,attr"`
	Term string `xml:",chardata"`
}

type outcome struct {
	Outcome string          `xml:"eventOutcome"`
	Details []outcomeDetail `xml:"eventOutcomeDetail"`
}

type outcomeDetail struct {
	Note string `xml:"eventOutcomeDetailNote"`
}

type linkedAgent struct {
	Type  string `xml:"linkingAgentIdentifierType"`
	Value string `xml:"linkingAgentIdentifierValue"`
	Role  string `xml:"linkingAgentRole"`
}

type linkedObject struct {
	Type  string `xml:"linkingObjectIdentifierType"`
	Value string `xml:"linkingObjectIdentifierValue"`
}

type agent struct {
	IdentifierType string `xml:"agentIdentifier>agentIdentifierType"`
	Identifier     string `xml:"agentIdentifier>agentIdentifierValue"`
	Name           string `xml:"agentName"`
	Type           string `xml:"agentType"`
	Note           string `xml:"agentNote,omitempty"`
}

// localID is the type of identifiers that Farol gives.
const localID = "local"

func describeObject(o record.Object) object {
	p := object{Identifiers: []objectID{{localID, o.Identifier}}, OriginalName: o.BagName}
	for _, property := range []property{
		{"title", o.Title},
		{"description", o.Description},
		{"access", o.Access},
		{"storage option", o.StorageOption},
		{"alternate identifier", o.AltIdentifier},
		{"BagIt profile", o.BagItProfileIdentifier},
		{"source organization", o.SourceOrganization},
	} {
		if property.Value != "" {
			p.Properties = append(p.Properties, property)
		}
	}
	return p
}

func describeFile(f record.File) object {
	c := characteristics{Size: f.Size, Format: format{Name: cmp.Or(f.FormatName, f.FileFormat), Notes: []string{"MIME type " + f.FileFormat}}}
	if f.FormatPUID != "" {
		c.Format.Registry = &formatRegistry{"PRONOM", f.FormatPUID}
	}
	if f.FormatReason != "" {
		c.Format.Notes = append(c.Format.Notes, f.FormatReason)
	}
	names := map[string]string{"md5": "MD5", "sha1": "SHA-1", "sha256": "SHA-256", "sha512": "SHA-512"}
	for _, d := range f.Digests {
		if d.Present {
			c.Fixity = append(c.Fixity, fixity{cmp.Or(names[d.Algorithm], d.Algorithm), d.Digest, "Farol"})
		}
	}
	p := object{
		Identifiers:     []objectID{{localID, f.Identifier}, {"UUID", f.UUID}},
		Characteristics: &c,
		OriginalName:    strings.TrimPrefix(f.Identifier, f.Object+"/"),
		Relationships:   []relationship{{"structural", "is part of", relatedID{localID, f.Object}}},
	}
	for _, copied := range f.Copies {
		p.Storage = append(p.Storage, stored{"URL", copied.URL, copied.Target})
	}
	return p
}

func describeEvent(e registry.LinkedEvent) event {
	p := event{
		IdentifierType: "UUID", Identifier: e.Identifier, Type: term{e.EventTypeURI, e.EventType},
		At: e.DateTime.UTC().Format(time.RFC3339Nano), Detail: e.Detail, Outcome: outcome{Outcome: e.Outcome},
		Agent:  linkedAgent{localID, agentOf(e.Event).id(), "executing program"},
		Object: linkedObject{localID, e.About},
	}
	for _, note := range []string{e.OutcomeDetail, e.OutcomeInformation} {
		if note != "" {
			p.Outcome.Details = append(p.Outcome.Details, outcomeDetail{note})
		}
	}
	return p
}

// Agent is what did something: software, and where it comes from.
type Agent struct {
	Name string `json:"name"`
	Home string `json:"home"`
}

func agentOf(e record.Event) Agent { return Agent{e.Object, e.Agent} }

// id distinguishes versions of the same software.
func (a Agent) id() string { return strings.TrimSpace(a.Name + " " + a.Home) }

func describeAgent(a Agent) agent {
	return agent{IdentifierType: localID, Identifier: a.id(), Name: cmp.Or(a.Name, a.Home), Type: "software", Note: a.Home}
}
