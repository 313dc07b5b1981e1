package record

import "time"

// ItemFilter narrows a list of work items, those in the archive included. Status, Name,
// Object, Review, Worker, Plan, Deletion and Institution have indexes; the other fields
// narrow what these find, or the newest items.
type ItemFilter struct {
	Status      []Status `query:"status,explode" maxItems:"6" enum:"Pending,Started,Success,Failed,Cancelled,Suspended" doc:"Any of these"`
	Institution string   `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Name        string   `query:"name" maxLength:"1000" doc:"Key in the receiving bucket"`
	Object      string   `query:"object" maxLength:"1000" doc:"Identifier of the object"`
	Review      bool     `query:"review" doc:"Only items that wait for a person"`
	Worker      string   `query:"worker" maxLength:"255" doc:"Only items that this worker runs; needs the permission items.workers"`
	Plan        int64    `query:"plan" minimum:"1" doc:"Only items of this plan; needs the permission plans.read"`
	Deletion    int64    `query:"deletion" minimum:"1" doc:"Only items of this deletion request"`

	Stage         []Stage   `query:"stage,explode" maxItems:"30" doc:"Any of these"`
	Action        []Action  `query:"action,explode" maxItems:"6" doc:"Any of these"`
	SizeMin       int64     `query:"size_min" minimum:"0" doc:"Bytes"`
	SizeMax       *int64    `json:"size_max"` // bytes
	UpdatedAfter  time.Time `query:"updated_after" doc:"Then or later"`
	UpdatedBefore time.Time `query:"updated_before" doc:"Before then"`
	CreatedAfter  time.Time `query:"created_after" doc:"Then or later"`
	ErrorCode     string    `query:"error_code" maxLength:"100"`
	StorageOption string    `query:"storage_option" maxLength:"100"`
}

// ObjectFilter narrows a list of objects. Institution, Identifier, Prefix and the window of
// updates have indexes; the other fields narrow what these find, or the newest objects.
type ObjectFilter struct {
	Institution   string    `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Identifier    string    `query:"identifier" maxLength:"1000"`
	Prefix        string    `query:"identifier_prefix" maxLength:"1000"` // of the identifier
	UpdatedAfter  time.Time `query:"updated_after" doc:"Then or later"`
	UpdatedBefore time.Time `query:"updated_before" doc:"Before then"`

	State         string `query:"state" enum:"A,D" doc:"A: active; D: deleted"`
	Access        string `query:"access" enum:"consortia,institution,restricted"` // consortia, institution or restricted
	StorageOption string `query:"storage_option" maxLength:"100"`
	BagGroup      string `query:"bag_group_identifier" maxLength:"1000"`
	AltIdentifier string `query:"alt_identifier" maxLength:"1000"`
	AltPrefix     string `query:"alt_identifier_prefix" maxLength:"1000"` // of the alternate identifier
	Sort          string `query:"sort" enum:"-id,-updated_at" doc:"-updated_at: by the last update, the latest first"`
}

// FileFilter narrows a list of files. A list of all institutions needs one of Institution,
// ObjectID, Object, Identifier, Prefix, UUID and Digest, which have indexes; the other
// fields narrow what these find.
type FileFilter struct {
	Institution string `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Object      string `query:"object" maxLength:"1000" doc:"Identifier of the object"`
	Identifier  string `query:"identifier" maxLength:"1100"`
	Prefix      string `query:"identifier_prefix" maxLength:"1100"` // of the identifier
	UUID        string `query:"uuid" maxLength:"36"`
	Digest      string `query:"digest" maxLength:"128" doc:"MD5 or SHA-256 in hexadecimal, of the present content or an earlier one"`

	State   string `query:"state" enum:"A,D" doc:"A: active; D: deleted"`
	Format  string `query:"format" maxLength:"255" doc:"PRONOM identifier or name"`
	SizeMin int64  `query:"size_min" minimum:"0" doc:"Bytes"`
	SizeMax *int64 `json:"size_max"` // bytes
}

// EventFilter narrows a list of PREMIS events. It needs one of Object, File, Failed,
// Type "deletion" and a window of recording of at most [MostDays] days, which have indexes;
// the other fields narrow what these find.
type EventFilter struct {
	Institution    string    `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Object         int64     `query:"object" minimum:"1" doc:"ID of an object: its own events, without those of its files"`
	File           int64     `query:"file" minimum:"1" doc:"ID of a file"`
	Failed         bool      `query:"failed" doc:"Only events with the outcome Failure"`
	Type           string    `query:"type" maxLength:"100" doc:"PREMIS event type"`
	RecordedAfter  time.Time `query:"recorded_after" doc:"Then or later"`
	RecordedBefore time.Time `query:"recorded_before" doc:"Before then, 31 days later at most"`

	Identifier string `query:"identifier" maxLength:"36" doc:"UUID; only with object or file"`
}

// RestorationFilter narrows the list of restorations.
type RestorationFilter struct {
	Status        []Status  `query:"status,explode" maxItems:"6" enum:"Pending,Started,Success,Failed,Cancelled,Suspended" doc:"Any of these"`
	Institution   string    `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Object        string    `query:"object" maxLength:"1000" doc:"Identifier of the object"`
	ErrorCode     string    `query:"error_code" maxLength:"100" doc:"Such as cost-approval, of those that wait for a person who approves their cost"`
	UpdatedAfter  time.Time `query:"updated_after" doc:"Then or later"`
	UpdatedBefore time.Time `query:"updated_before" doc:"Before then"`
}

// ExportFilter narrows the list of exports.
type ExportFilter struct {
	Institution string `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
}

// PlanListFilter narrows the list of plans.
type PlanListFilter struct {
	State []string `query:"state,explode" maxItems:"5" enum:"ready,applying,applied,undoing,undone" doc:"Any of these"`
}
