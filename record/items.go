package record

import "time"

// Obstacle is one reason why an item is not claimed now, and what to do about it.
type Obstacle struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// RequeueLine is a line of what requeueing many items comes to.
type RequeueLine struct {
	What   string  `json:"what"`
	Count  *int64  `json:"count"`
	Item   *int64  `json:"item"` // an example
	Reason *string `json:"reason"`
}

// WorkItem is a work item as people see it.
type WorkItem struct {
	ID                   int64      `json:"id"`
	Action               Action     `json:"action"`
	Stage                Stage      `json:"stage"`
	Status               Status     `json:"status"`
	Name                 string     `json:"name"`
	ETag                 string     `json:"etag" db:"etag"`
	Bucket               string     `json:"bucket"`
	Size                 int64      `json:"size"`
	Institution          string     `json:"institution_identifier"`
	InstitutionID        int64      `json:"institution_id"`
	ObjectIdentifier     string     `json:"object_identifier"`
	IntellectualObjectID *int64     `json:"intellectual_object_id"`
	Note                 string     `json:"note"`
	Outcome              string     `json:"outcome"`
	ErrorCode            string     `json:"error_code"`
	Retry                bool       `json:"retry"`
	NeedsAdminReview     bool       `json:"needs_admin_review"`
	Attempt              int        `json:"attempt"`
	Node                 *string    `json:"node"`
	PID                  *int       `json:"pid" db:"pid"`
	Worker               *string    `json:"worker"`
	ClaimToken           int64      `json:"claim_token"`
	Priority             int        `json:"priority"`
	RunAt                *time.Time `json:"run_at"` // nil while it waits for another item
	WaitsFor             *int64     `json:"waits_for"`
	LeaseExpiresAt       *time.Time `json:"lease_expires_at"`
	StageStartedAt       *time.Time `json:"stage_started_at"`
	BagDate              time.Time  `json:"bag_date"`
	DateProcessed        time.Time  `json:"date_processed"`
	QueuedAt             *time.Time `json:"queued_at"`
	CreatedAt            time.Time  `json:"created_at"`
	UpdatedAt            time.Time  `json:"updated_at"`
	User                 string     `json:"user"`
	GenericFileID        *int64     `json:"generic_file_id"` // of a request for a single file
	InstApprover         *string    `json:"inst_approver"`   // of a deletion
	DeletionRequestID    *int64     `json:"deletion_request_id"`
	Order                []Stage    `json:"-" db:"stage_order"` // the stages of its action, as they are now
}

// RequeueStage is a stage to which an item may be requeued, or why it may not.
type RequeueStage struct {
	Stage    Stage   `json:"stage"`
	BeginsAt Stage   `json:"begins_at"` // where it begins: a bag that was found invalid is read again
	Redone   []Stage `json:"redone"`    // stages that are carried out again, or for the first time
	Refused  *string `json:"refused"`   // why it may not; nil: it may
}

// Attempt is one row of the ledger: a claim, from its start to its end.
type Attempt struct {
	ClaimToken  int64      `json:"claim_token"`
	Stage       Stage      `json:"stage"`
	Attempt     int        `json:"attempt"`
	Node        string     `json:"node"`
	PID         int        `json:"pid" db:"pid"`
	Worker      string     `json:"worker"`
	ClaimedAt   time.Time  `json:"claimed_at"`
	HeartbeatAt time.Time  `json:"heard_at"`
	EndedAt     *time.Time `json:"ended_at"` // nil while it runs
	Outcome     *string    `json:"outcome"`
	ErrorCode   string     `json:"error_code"`
	Error       string     `json:"error"`
	CurrentFile string     `json:"file_in_hand"`
}

// Change is a decision of a person about an item, by command or in psql.
type Change struct {
	At         time.Time `json:"at"`
	Actor      string    `json:"actor"`   // acting_user(): a person who had signed in, or user and person
	User       string    `json:"user"`    // of the database
	Person     *string   `json:"person"`  // who ran the command, as it said; nil: nobody is named
	Program    string    `json:"program"` // as it named itself
	StageWas   Stage     `json:"stage_was"`
	StatusWas  string    `json:"status_was"`
	StageThen  Stage     `json:"stage"`
	StatusThen string    `json:"status"`
	Refused    *string   `json:"refused"` // why nothing was changed
	Note       *string   `json:"note"`    // what was noted, where nothing was to be changed
}

// Action is what is done with an item.
type Action string

// Status is the state of an item.
type Status string

// Stage is where an item has come to with its action. Administrators may add stages to
// an ingest, so that there are others than these.
type Stage string

// Interval is when something will be over: in one case of ten before Low, in five before
// Likely, in nine before High.
type Interval struct {
	Low    time.Time `json:"low"`
	Likely time.Time `json:"likely"`
	High   time.Time `json:"high"`
}

// Times are when an item ends, and when it is through with the stage that it is at. What is
// nil is not known, for the reason given.
type Times struct {
	End          *Interval `json:"estimate"`
	Unknown      string    `json:"estimate_unknown"`
	StageEnd     *Interval `json:"stage_estimate"`
	StageUnknown string    `json:"stage_estimate_unknown"`
}

// Span is how long something will take, in seconds.
type Span struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

// Group counts the parked items that ended in the same way at the same stage.
type Group struct {
	ErrorCode string    `json:"error_code"` // "" if none is on record
	Stage     Stage     `json:"stage"`
	Action    Action    `json:"action"`
	Items     int64     `json:"items"`
	Bytes     int64     `json:"bytes"`
	First     time.Time `json:"first_at"` // when the first of them was changed last
	Last      time.Time `json:"last_at"`
	Example   int64     `json:"example"` // ID of the newest

	Institutions []GroupPart `json:"institutions"` // the one with the most items first
	Hours        []GroupHour `json:"hours"`        // of the last 24, those in which items were changed last
}

// GroupPart is how many items of a group an institution has.
type GroupPart struct {
	Institution string `json:"institution_identifier"`
	Items       int64  `json:"items"`
}

// GroupHour is how many items of a group were changed last within an hour.
type GroupHour struct {
	Hour  time.Time `json:"hour"` // when it begins
	Items int64     `json:"items"`
}

// ItemEstimate is when an item ends.
type ItemEstimate struct {
	ID int64 `json:"id"`
	Times
}

// ItemView is an item with what it waits for.
type ItemView struct {
	WorkItem
	Times

	Stages []Stage    `json:"stages" doc:"Those of its action, in their order"`
	Why    []Obstacle `json:"why" doc:"What keeps it from being claimed now"`
}

// ItemHistory is what happened to an item.
type ItemHistory struct {
	Attempts []Attempt `json:"attempts"`
	Changes  []Change  `json:"changes" doc:"By people"`
}

// GroupsView are parked items by what they failed of.
type GroupsView struct {
	Items    []Group `json:"items"`
	Complete bool    `json:"complete" doc:"false: 10,000 items or more are parked, and the newest of them were read"`
	Age      float64 `json:"age_seconds" doc:"They are read every 5 seconds at most"`
}
