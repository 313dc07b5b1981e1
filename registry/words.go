package registry

// Action is what is done with an item.
type Action string

// The actions.
const (
	Ingest         Action = "Ingest"
	RestoreFile    Action = "Restore File"
	RestoreObject  Action = "Restore Object"
	GlacierRestore Action = "Glacier Restore"
	Delete         Action = "Delete"
)

// Status is the state of an item.
type Status string

// The statuses.
const (
	Pending   Status = "Pending"   // it waits for a worker
	Started   Status = "Started"   // a worker has it
	Success   Status = "Success"   // it came to its end
	Failed    Status = "Failed"    // it cannot be done
	Suspended Status = "Suspended" // a person has to decide
	Cancelled Status = "Cancelled" // it is no longer wanted
)
