package record

import (
	"fmt"
	"strconv"
	"time"
)

// ExportKind is what an export has.
type ExportKind string

// Export is an export on record.
type Export struct {
	ID          int64      `json:"id"`
	Kind        ExportKind `json:"kind"`
	Institution string     `json:"institution_identifier"`
	Object      *string    `json:"object_identifier"` // nil: the whole institution
	RequestedBy string     `json:"requested_by"`
	CreatedAt   time.Time  `json:"created_at"`
	WorkItem    *int64     `json:"work_item_id"` // that writes it into the restoration bucket; nil: it is downloaded
	Bucket      *string    `json:"bucket"`       // nil: as above
	Key         *string    `json:"key"`
	Records     *int64     `json:"records"` // nil until it was written, like the next ones
	Bytes       *int64     `json:"bytes"`
	SHA256      *string    `json:"sha256" db:"sha256"`
	TakenAt     *time.Time `json:"taken_at"` // moment that it shows
	CompletedAt *time.Time `json:"completed_at"`
}

// Counted is what a count found.
type Counted struct {
	Since     *time.Time `json:"since"`     // from when on ended items were counted; nil: all were
	Objects   int64      `json:"objects"`   // active ones
	Items     int64      `json:"items"`     // that ended since
	Corrected int64      `json:"corrected"` // objects whose files were counted again, and were others
}

// String is the result of the job.
func (c Counted) String() string {
	if c.Since == nil {
		return fmt.Sprintf("counted %d objects and all items that ended: %d; corrected the figures of %d objects", c.Objects, c.Items, c.Corrected)
	}
	return fmt.Sprintf("counted %d objects, and the items that ended since %s: %d", c.Objects, c.Since.UTC().Format(time.DateOnly), c.Items)
}

// Grouping is what the rows of a report stand for.
type Grouping string

// Deposit is what was in storage at the last count of a day.
type Deposit struct {
	Key     string `json:"key"` // identifier of an institution, name of a storage option, or a month such as 2026-11
	Day     string `json:"day"` // of the count, such as 2026-11-26
	Objects int64  `json:"objects"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"` // each file counted once, however many copies it has
}

// Cost is what an institution's storage costs in a month.
type Cost struct {
	Institution   string  `json:"institution"`
	StorageOption string  `json:"storage_option"`
	Days          int64   `json:"days"`                             // of the month that were counted
	Bytes         int64   `json:"bytes"`                            // mean of these days
	IncludedTiB   *string `json:"included_tib" db:"included_tib"`   // that cost nothing
	PerGiBMonth   *string `json:"per_gib_month" db:"per_gib_month"` // US dollars; nil: no price is set
	Cost          *string `json:"cost"`                             // US dollars for a whole month; nil: no price is set
}

// Outcome is how items ended.
type Outcome struct {
	Key    string `json:"key"`    // an action, the identifier of an institution, or a day
	Result string `json:"result"` // Success, Cancelled, Failed or Suspended
	Items  int64  `json:"items"`
	Bytes  int64  `json:"bytes"`
}

// ExportScope is what an export is of.
type ExportScope struct {
	Institution string `json:"institution,omitempty" maxLength:"255" doc:"Identifier; without it and without object, your own institution"`
	Object      string `json:"object,omitempty" maxLength:"1000" doc:"Identifier of an object of the institution: only this one"`
}

// ExportView is an export with where its content is.
type ExportView struct {
	Export

	Content *string `json:"content" doc:"Path of the content; null: it is in the restoration bucket, or will be"`
}

// DepositsReport is what is in storage.
type DepositsReport struct {
	By    Grouping  `json:"by" doc:"What the keys of the rows are"`
	Items []Deposit `json:"items"`
}

// CostsReport is what storage costs.
type CostsReport struct {
	Month string `json:"month" doc:"Such as 2026-11"`
	Items []Cost `json:"items"`
}

// OutcomesReport is how items ended.
type OutcomesReport struct {
	By    Grouping  `json:"by" doc:"What the keys of the rows are"`
	From  string    `json:"from" doc:"First day"`
	To    string    `json:"to" doc:"Last day"`
	Items []Outcome `json:"items"`
}

// Table is the report as rows and columns.
func (r DepositsReport) Table() [][]string {
	rows := [][]string{{string(r.By), "day", "objects", "files", "bytes"}}
	for _, d := range r.Items {
		rows = append(rows, []string{d.Key, d.Day, number(d.Objects), number(d.Files), number(d.Bytes)})
	}
	return rows
}

// Table is the report as rows and columns.
func (r CostsReport) Table() [][]string {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	rows := [][]string{{"institution", "storage_option", "month", "days", "bytes", "included_tib", "per_gib_month", "cost"}}
	for _, c := range r.Items {
		rows = append(rows, []string{c.Institution, c.StorageOption, r.Month, number(c.Days), number(c.Bytes), text(c.IncludedTiB), text(c.PerGiBMonth), text(c.Cost)})
	}
	return rows
}

// Table is the report as rows and columns.
func (r OutcomesReport) Table() [][]string {
	rows := [][]string{{string(r.By), "result", "items", "bytes"}}
	for _, o := range r.Items {
		rows = append(rows, []string{o.Key, o.Result, number(o.Items), number(o.Bytes)})
	}
	return rows
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// ExportRequest says what to export.
type ExportRequest struct {
	Kind  ExportKind  `json:"kind" enum:"inventory,manifest,events,premis,evidence" doc:"inventory: active files as CSV; manifest: their SHA-256; events: JSON lines; premis: PREMIS 3 XML; evidence: all of this of one object, as a ZIP archive"`
	Scope ExportScope `json:"scope,omitempty"`
}
