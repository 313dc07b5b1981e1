package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// The entities of PREMIS 3 as premis-v3-0.xsd has them. The order of the fields is
// that of the schema's sequences, which it insists on.

type premisObject struct {
	Identifiers     []premisObjectID       `xml:"objectIdentifier"`
	Properties      []premisProperty       `xml:"significantProperties"`
	Characteristics *premisCharacteristics `xml:"objectCharacteristics"` // of a file
	OriginalName    string                 `xml:"originalName,omitempty"`
	Storage         []premisStorage        `xml:"storage"`
	Relationships   []premisRelationship   `xml:"relationship"`
}

type premisObjectID struct {
	Type  string `xml:"objectIdentifierType"`
	Value string `xml:"objectIdentifierValue"`
}

type premisProperty struct {
	Type  string `xml:"significantPropertiesType"`
	Value string `xml:"significantPropertiesValue"`
}

type premisCharacteristics struct {
	Level  int            `xml:"compositionLevel"`
	Fixity []premisFixity `xml:"fixity"`
	Size   int64          `xml:"size"`
	Format premisFormat   `xml:"format"`
}

type premisFixity struct {
	Algorithm  string `xml:"messageDigestAlgorithm"`
	Digest     string `xml:"messageDigest"`
	Originator string `xml:"messageDigestOriginator"`
}

type premisFormat struct {
	Name     string          `xml:"formatDesignation>formatName"`
	Registry *premisRegistry `xml:"formatRegistry"`
	Notes    []string        `xml:"formatNote"`
}

type premisRegistry struct {
	Name string `xml:"formatRegistryName"`
	Key  string `xml:"formatRegistryKey"`
}

type premisStorage struct {
	LocationType string `xml:"contentLocation>contentLocationType"`
	Location     string `xml:"contentLocation>contentLocationValue"`
	Medium       string `xml:"storageMedium"`
}

type premisRelationship struct {
	Type    string          `xml:"relationshipType"`
	SubType string          `xml:"relationshipSubType"`
	Object  premisRelatedID `xml:"relatedObjectIdentifier"`
}

type premisRelatedID struct {
	Type  string `xml:"relatedObjectIdentifierType"`
	Value string `xml:"relatedObjectIdentifierValue"`
}

type premisEvent struct {
	IdentifierType string             `xml:"eventIdentifier>eventIdentifierType"`
	Identifier     string             `xml:"eventIdentifier>eventIdentifierValue"`
	Type           premisTerm         `xml:"eventType"`
	At             string             `xml:"eventDateTime"`
	Detail         string             `xml:"eventDetailInformation>eventDetail"`
	Outcome        premisOutcome      `xml:"eventOutcomeInformation"`
	Agent          premisLinkedAgent  `xml:"linkingAgentIdentifier"`
	Object         premisLinkedObject `xml:"linkingObjectIdentifier"`
}

type premisTerm struct {
	URI  string `xml:"valueURI,attr"`
	Term string `xml:",chardata"`
}

type premisOutcome struct {
	Outcome string                `xml:"eventOutcome"`
	Details []premisOutcomeDetail `xml:"eventOutcomeDetail"`
}

type premisOutcomeDetail struct {
	Note string `xml:"eventOutcomeDetailNote"`
}

type premisLinkedAgent struct {
	Type  string `xml:"linkingAgentIdentifierType"`
	Value string `xml:"linkingAgentIdentifierValue"`
	Role  string `xml:"linkingAgentRole"`
}

type premisLinkedObject struct {
	Type  string `xml:"linkingObjectIdentifierType"`
	Value string `xml:"linkingObjectIdentifierValue"`
}

type premisAgent struct {
	IdentifierType string `xml:"agentIdentifier>agentIdentifierType"`
	Identifier     string `xml:"agentIdentifier>agentIdentifierValue"`
	Name           string `xml:"agentName"`
	Type           string `xml:"agentType"`
	Note           string `xml:"agentNote,omitempty"`
}

// localID is the type of identifiers that Farol gives.
const localID = "local"

func premisOfObject(o registry.Object) premisObject {
	p := premisObject{Identifiers: []premisObjectID{{localID, o.Identifier}}, OriginalName: o.BagName}
	for _, property := range []premisProperty{
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

func premisOfFile(f registry.File) premisObject {
	c := premisCharacteristics{Size: f.Size, Format: premisFormat{Name: cmp.Or(f.FormatName, f.FileFormat), Notes: []string{"MIME type " + f.FileFormat}}}
	if f.FormatPUID != "" {
		c.Format.Registry = &premisRegistry{"PRONOM", f.FormatPUID}
	}
	if f.FormatReason != "" {
		c.Format.Notes = append(c.Format.Notes, f.FormatReason)
	}
	names := map[string]string{"md5": "MD5", "sha1": "SHA-1", "sha256": "SHA-256", "sha512": "SHA-512"}
	for _, d := range f.Digests {
		if d.Present {
			c.Fixity = append(c.Fixity, premisFixity{cmp.Or(names[d.Algorithm], d.Algorithm), d.Digest, "Farol"})
		}
	}
	p := premisObject{
		Identifiers:     []premisObjectID{{localID, f.Identifier}, {"UUID", f.UUID}},
		Characteristics: &c,
		OriginalName:    strings.TrimPrefix(f.Identifier, f.Object+"/"),
		Relationships:   []premisRelationship{{"structural", "is part of", premisRelatedID{localID, f.Object}}},
	}
	for _, copied := range f.Copies {
		p.Storage = append(p.Storage, premisStorage{"URL", copied.URL, copied.Target})
	}
	return p
}

func premisOfEvent(e registry.LinkedEvent) premisEvent {
	p := premisEvent{
		IdentifierType: "UUID", Identifier: e.Identifier, Type: premisTerm{e.EventTypeURI, e.EventType},
		At: e.DateTime.UTC().Format(time.RFC3339Nano), Detail: e.Detail, Outcome: premisOutcome{Outcome: e.Outcome},
		Agent:  premisLinkedAgent{localID, agentOf(e.Event).id(), "executing program"},
		Object: premisLinkedObject{localID, e.About},
	}
	for _, note := range []string{e.OutcomeDetail, e.OutcomeInformation} {
		if note != "" {
			p.Outcome.Details = append(p.Outcome.Details, premisOutcomeDetail{note})
		}
	}
	return p
}

// softwareAgent is what did something: software, and where it comes from.
type softwareAgent struct{ name, home string }

func agentOf(e registry.Event) softwareAgent { return softwareAgent{e.Object, e.Agent} }

// id tells versions of the same software apart.
func (a softwareAgent) id() string { return strings.TrimSpace(a.name + " " + a.home) }

func premisOfAgent(a softwareAgent) premisAgent {
	return premisAgent{IdentifierType: localID, Identifier: a.id(), Name: cmp.Or(a.name, a.home), Type: "software", Note: a.home}
}
