package registry

import "github.com/farol-preservation/farol/record"

// Action is what is done with an item.
type Action = record.Action

// The actions.
const (
	Ingest         Action = "Ingest"
	RestoreFile    Action = "Restore File"
	RestoreObject  Action = "Restore Object"
	GlacierRestore Action = "Glacier Restore"
	Delete         Action = "Delete"
	ExportRecords  Action = "Export"
)

// Status is the state of an item.
type Status = record.Status

// The statuses.
const (
	Pending   Status = "Pending"   // it waits for a worker
	Started   Status = "Started"   // a worker has it
	Success   Status = "Success"   // it came to its end
	Failed    Status = "Failed"    // it cannot be done
	Suspended Status = "Suspended" // a person has to decide
	Cancelled Status = "Cancelled" // it is no longer wanted
)

// Stage is where an item has come to with its action. Administrators may add stages to
// an ingest, so that there are others than these.
type Stage = record.Stage

// The stages of an ingest, in their order.
const (
	Receive              Stage = "Receive"
	Validate             Stage = "Validate"
	ReingestCheck        Stage = "Reingest Check"
	CopyToStaging        Stage = "Copy To Staging"
	FormatIdentification Stage = "Format Identification"
	Store                Stage = "Store"
	StorageValidation    Stage = "Storage Validation"
	Record               Stage = "Record"
	Cleanup              Stage = "Cleanup"
)

// All other actions are requests. They have one stage to be processed at, and another
// when they are done.
const (
	Requested Stage = "Requested"
	Resolve   Stage = "Resolve"
)
