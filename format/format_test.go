package format

import (
	"testing"
)

// The values are those that the old system's records hold.
func TestExtensionsGiveTheTypesOnRecord(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"data/a.txt": "text/plain", "a.xml": "text/xml", "a.json": "application/json",
		"a.csv": "text/csv", "a.jpg": "image/jpeg", "a.png": "image/png",
		"a.svg": "image/svg+xml", "a.go": "text/x-go", "a.html": "text/html",
		"a.pdf": "application/pdf", "a.tar": "application/x-tar", "a.zip": "application/zip",
		"a.gz": "application/x-gzip", "a.wav": "audio/wav", "a.mp3": "audio/mpeg",
		"a.mp4": "video/mp4", "a.mov": "video/quicktime", "a.mkv": "video/x-matroska",
		"a.tif": "image/tiff", "a.doc": "application/msword",
		"a.docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"a.xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
		"a.xls":  "application/vnd.ms-excel", "a.ppt": "application/vnd.ms-powerpoint",
		"a.py": "text/x-python", "a.js": "application/javascript", "a.css": "text/css",
		"a.dat": "application/octet-stream", "a.xsd": "text/xml", "a.rtf": "application/rtf",
		"a.eml": "message/rfc822", "a.mbox": "application/mbox", "a.gif": "image/gif",

		"a.md": unknownMIME, "a.warc": unknownMIME, "a.jp2": unknownMIME, "a.yml": unknownMIME,
		"a.yaml": unknownMIME, "a.log": unknownMIME, "a.epub": unknownMIME,

		"A.PDF": "application/pdf", "v1.0/README": unknownMIME, "": unknownMIME, "a.": unknownMIME,
		".DS_Store": unknownMIME, "a.b.txt": "text/plain", "a.pdf application": unknownMIME,
		"a.txt\n.pdf": "application/pdf", "a.pdf\n": unknownMIME,
	} {
		if got := ByExtension(name); got != want {
			t.Errorf("ByExtension(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestTheFirstMatchWithATypeIsChosen(t *testing.T) {
	t.Parallel()
	none := match{ID: "fmt/394", Format: "DS_Store"}
	pdf := match{ID: "fmt/18", Format: "PDF", MIME: "application/pdf, application/x-pdf", Basis: "byte match at 0, 8"}
	unknown := match{ID: "UNKNOWN", Warning: "no match"}
	for name, row := range map[string]struct {
		answer answer
		want   Result
	}{
		"first with a type": {
			answer{Matches: []match{none, pdf}},
			Result{MIME: "application/pdf", PUID: "fmt/18", Name: "PDF", Method: "signature", IdentifiedBy: BySiegfried},
		},
		"no type": {
			answer{Matches: []match{none}},
			Result{MIME: "text/x-go", PUID: "fmt/394", Name: "DS_Store", Method: "extension", IdentifiedBy: ByExtensionMap, Reason: Unknown},
		},
		"unknown": {
			answer{Matches: []match{unknown}},
			Result{MIME: "text/x-go", Method: "extension", IdentifiedBy: ByExtensionMap, Warning: "no match", Reason: Unknown},
		},
		"nothing": {
			answer{},
			Result{MIME: "text/x-go", Method: "extension", IdentifiedBy: ByExtensionMap, Reason: Unknown},
		},
		"an error outweighs a type": {
			answer{Matches: []match{pdf}, Error: "zip: broken"},
			Result{MIME: "text/x-go", PUID: "fmt/18", Name: "PDF", Method: "extension", IdentifiedBy: ByExtensionMap, Reason: Refused, Detail: "zip: broken"},
		},
	} {
		if got := choose("a.go", row.answer); got != row.want {
			t.Errorf("%s: choose = %+v, want %+v", name, got, row.want)
		}
	}
}

func TestMethodsAreTheThreeWordsOnRecord(t *testing.T) {
	t.Parallel()
	for basis, want := range map[string]string{
		"extension match docx; container name [Content_Types].xml with byte match at 0, 4": "container",
		"extension match pdf; byte match at 0, 8":                                          "signature",
		"xml match with root svg and ns http://www.w3.org/2000/svg":                        "signature",
		"text match ASCII":     "signature",
		"extension match json": "extension",
		"":                     "extension",
	} {
		if got := method(basis); got != want {
			t.Errorf("method(%q) = %q, want %q", basis, got, want)
		}
	}
}
