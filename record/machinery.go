package record

import (
	"encoding/json"
	"time"
)

// Pause is one pause of a stage. The stage is claimed again when no pause of it is left.
type Pause struct {
	ID     int64     `json:"id"` // the same for all stages that were paused together
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	Reason *string   `json:"reason"`
	OfAll  bool      `json:"of_all"` // it was made for all stages
	InNSQ  bool      `json:"in_nsq"` // it came from NSQ
}

// StagePause reports whether a stage is paused, and by whom. With several pauses, PausedBy
// and PauseReason name all, and PausedAt is of the first.
type StagePause struct {
	Action      Action     `json:"action"`
	Stage       Stage      `json:"stage"`
	Paused      bool       `json:"paused"`
	PausedBy    *string    `json:"paused_by"`
	PausedAt    *time.Time `json:"paused_at"`
	PauseReason *string    `json:"pause_reason"`
	Pauses      []Pause    `json:"pauses"`
}

// Worker is a worker process that lives.
type Worker struct {
	Worker       string          `json:"worker"`
	Node         string          `json:"node"`
	PID          int             `json:"pid" db:"pid"`
	Pools        json.RawMessage `json:"pools"`
	Slots        *int            `json:"slots"`   // of all pools
	Running      int             `json:"running"` // items
	HeartbeatAgo float64         `json:"heard_ago_seconds"`
	Draining     bool            `json:"draining"`
	Started      time.Time       `json:"started"`
}

// EndedWorker is a worker process that has ended.
type EndedWorker struct {
	Worker   string    `json:"worker"`
	Node     string    `json:"node"`
	PID      int       `json:"pid" db:"pid"`
	Started  time.Time `json:"started"`
	LastBeat time.Time `json:"last_heard_at"`
	Ended    time.Time `json:"ended"`
	Ending   string    `json:"ending"` // stopped, killed, oom, panic or silent
}

// Pool is a pool of a live worker. Empty lists have everything.
type Pool struct {
	Slots          int      `json:"slots"`
	Stages         []Stage  `json:"stages"`
	Actions        []Action `json:"actions"`
	MinSize        int64    `json:"min_size"`
	MaxSize        int64    `json:"max_size"` // exclusive; 0: no bound
	StorageOptions []string `json:"storage_options"`
	Institutions   []string `json:"institutions"`
}

// Queue is a queue of the pull API, or a topic of the pipeline that a program pulls.
type Queue struct {
	Queue     string          `json:"queue"`
	Pipeline  bool            `json:"pipeline"`       // it is a topic of the pipeline
	Last      int64           `json:"last_number"`    // of the last message; 0 for a topic
	Messages  int64           `json:"messages"`       // that are kept; 0 for a topic
	Depth     int64           `json:"depth"`          // messages that the receiver which is furthest behind has yet to end; all if there is none
	Oldest    float64         `json:"oldest_seconds"` // age of the first of them; 0 if there is none
	Failed    int64           `json:"failed"`         // deliveries
	Receivers []QueueReceiver `json:"receivers"`
}

// QueueReceiver is how far a receiver is in a queue. Of a topic of the pipeline, what
// waits is counted among the next 10,000 messages of all topics.
type QueueReceiver struct {
	Queue      string    `json:"-"`
	Pipeline   bool      `json:"-"`
	Receiver   string    `json:"receiver"`
	Position   int64     `json:"position"` // number of the last message that it was given, or has passed
	Waiting    int64     `json:"waiting"`  // messages that it was not given yet
	Processing int64     `json:"processing"`
	Delayed    int64     `json:"delayed"` // that it has come to before their time
	Failed     int64     `json:"failed"`
	Oldest     float64   `json:"oldest_seconds"` // age of the first that waits or is processing; 0 if there is none
	PulledAt   time.Time `json:"pulled_at"`      // to the minute
}

// PostedMessage is what has become of a posted message.
type PostedMessage struct {
	Queue     string            `json:"queue"`
	Number    int64             `json:"id"`
	Sender    string            `json:"sender"`
	CreatedAt time.Time         `json:"created_time"`
	RunAt     *time.Time        `json:"run_at"` // nil: at once
	Receivers []MessageReceiver `json:"receivers"`
}

// MessageReceiver is what has become of a message with one receiver: it is waiting
// for it, delayed, processing, finished or failed, or the receiver has passed it over.
type MessageReceiver struct {
	Receiver  string     `json:"receiver"`
	Status    string     `json:"status"`
	FailCount int        `json:"fail_count"`
	Result    *string    `json:"result"`
	GivenAt   *time.Time `json:"given_at"` // for the first time
	UpdatedAt *time.Time `json:"updated_at"`
}

// Service is a service that work needs, as the view services has it.
type Service struct {
	Service        string     `json:"service"`
	State          string     `json:"state"` // ok; failing for some workers; held for all
	Since          *time.Time `json:"since"` // nil if it is ok
	Code           string     `json:"code"`
	Said           string     `json:"said"`   // by the service, in a few words
	Detail         string     `json:"detail"` // the error that was seen
	Failing        int64      `json:"workers_failing"`
	Workers        int64      `json:"workers"` // that use it
	FailingWorkers []string   `json:"failing_workers"`
	NextProbeAt    *time.Time `json:"next_probe_at"`
	HeldBy         *string    `json:"held_by"` // a person; nil if nobody holds it
	HeldReason     *string    `json:"held_reason"`
	OfProcess      bool       `json:"of_process"` // each process has its own; it is never held for all
	Waiting        int64      `json:"waiting"`    // items that wait for it; of more than 10000 so many are counted
	Text           string     `json:"text"`       // in a sentence; "" if it is ok
}

// QueueStage is a stage of the queue as people see it.
type QueueStage struct {
	Action      Action  `json:"action"`
	Stage       Stage   `json:"stage"`
	Ordinal     int     `json:"ordinal"` // its place in the order of the action
	Worker      string  `json:"worker"`  // farol, or http for programs that ask over HTTP
	Topic       string  `json:"topic"`
	MaxAttempts int     `json:"max_attempts"`
	Lease       float64 `json:"lease_seconds"`
	Heartbeat   float64 `json:"heartbeat_seconds"`
	Timeout     float64 `json:"timeout_seconds"` // 0: as long as it needs
	Overdue     float64 `json:"overdue_seconds"` // for which an item may be due before the staff is alerted
	Cap         int     `json:"cap"`             // of items at once in all processes; 0: any number
	Paused      bool    `json:"paused"`
	Pauses      []Pause `json:"pauses"`  // in force
	Waiting     int64   `json:"waiting"` // items
	Running     int64   `json:"running"`
	Parked      int64   `json:"parked"`
}

// StageSettings are the settings of a stage, with its pause. What is at the stage is not
// counted.
type StageSettings struct {
	QueueStage

	PausedBy    *string    `json:"paused_by"`
	PausedAt    *time.Time `json:"paused_at"`
	PauseReason *string    `json:"pause_reason"`
}

// Schedule is a recurring job, as people see it.
type Schedule struct {
	Job       string         `json:"job"`
	Every     time.Duration  `json:"every_ns"` // as the last process that ran it was configured
	Paused    bool           `json:"paused"`
	Pauses    []Pause        `json:"pauses"` // in force; the job is run again when none is left
	Running   bool           `json:"running"`
	Holder    string         `json:"holder"` // who runs it, or ran it last
	BeganAt   *time.Time     `json:"began_at"`
	EndedAt   *time.Time     `json:"ended_at"` // the last run that came to its end
	Took      *time.Duration `json:"took_ns"`  // that run; nil while another is under way
	NextRunAt time.Time      `json:"next_run_at"`
	Late      time.Duration  `json:"late_ns"` // since it was due; 0 if it is paused or under way
	Result    string         `json:"result"`  // of the run that ended last
	Error     string         `json:"error"`   // what that could not do
	Runs      int64          `json:"runs"`
	Failures  int64          `json:"failures"`
}

// Round is what is known of the janitor's rounds.
type Round struct {
	Holder  string     `json:"holder"` // who makes one now, or made the last
	Running bool       `json:"running"`
	BeganAt *time.Time `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"` // the last that came to its end
	Error   string     `json:"error"`    // what that one could not do
}

// QueuePartition counts the items of an institution at a stage in one size band.
type QueuePartition struct {
	InstitutionID int64   `json:"institution_id"`
	Institution   string  `json:"institution_identifier"`
	Action        Action  `json:"action"`
	Stage         Stage   `json:"stage"`
	SizeBand      int16   `json:"size_band"`
	Due           int64   `json:"due"`
	Delayed       int64   `json:"delayed"` // until a time
	Waiting       int64   `json:"waiting"` // for another item
	Running       int64   `json:"running"`
	Parked        int64   `json:"parked"`             // Failed or Suspended
	Bytes         int64   `json:"bytes"`              // of those that are not parked
	OldestDue     float64 `json:"oldest_due_seconds"` // for which the first has been due; 0: none is
}

// Ended counts items that came to an end within an hour.
type Ended struct {
	Hour   time.Time `json:"hour"` // when it began
	Action Action    `json:"action"`
	Status Status    `json:"status"` // Success, Cancelled, Failed or Suspended
	Items  int64     `json:"items"`
	Recent int64     `json:"items_in_last_hour"` // of these, in the last 60 minutes
	Bytes  int64     `json:"bytes"`
}

// MirrorView is what nsqd shows of the queue, with what the registry has.
type MirrorView struct {
	Known   bool          `json:"known" doc:"false: nsqd's figures could not be read"`
	Note    string        `json:"note" doc:"Why they could not; empty: there is nothing to say"`
	Age     float64       `json:"age_seconds"`
	NSQD    string        `json:"nsqd" doc:"Address of nsqd's HTTP API"`
	Running *bool         `json:"running" doc:"Whether a mirror runs; null: not known"`
	Since   *time.Time    `json:"since" doc:"Since when it has run; null: not known"`
	Moved   *time.Time    `json:"moved_at" doc:"When a mirror published last; null: never, or not known"`
	Admin   string        `json:"nsqadmin" doc:"URL of nsqadmin; empty: the server does not know it"`
	Behind  int           `json:"behind" doc:"Messages that are not published yet"`
	Oldest  float64       `json:"behind_seconds" doc:"Age of the first of them"`
	Topics  []MirrorTopic `json:"topics"`
}

// MirrorTopic is a topic in the registry and in nsqd.
type MirrorTopic struct {
	Topic         string `json:"topic"`
	Due           int64  `json:"due" doc:"Items that are due"`
	Running       int64  `json:"running" doc:"Items that run, or files that are checked"`
	Later         int64  `json:"later" doc:"Items that wait for a time or for another item"`
	Depth         int64  `json:"depth" doc:"Messages that nsqd has queued"`
	InFlight      int64  `json:"in_flight"`
	Deferred      int64  `json:"deferred"`
	Drift         int64  `json:"drift" doc:"By how many messages depth and in_flight are off, together"`
	PausedInFarol bool   `json:"paused_in_farol"`
	PausedInNSQ   bool   `json:"paused_in_nsq"`
}

// Drift is by how many messages all topics are off.
func (v MirrorView) Drift() (n int64) {
	for _, t := range v.Topics {
		n += t.Drift
	}
	return n
}

// Stands reports whether it is known that no mirror runs.
func (v MirrorView) Stands() bool { return v.Running != nil && !*v.Running }

// QueueBand counts items at a stage in one size band.
type QueueBand struct {
	Action    Action  `json:"action"`
	Stage     Stage   `json:"stage"`
	SizeBand  int16   `json:"size_band"`
	Due       int64   `json:"due"`
	Delayed   int64   `json:"delayed" doc:"Until a time"`
	Waiting   int64   `json:"waiting" doc:"For another item"`
	Running   int64   `json:"running"`
	Parked    int64   `json:"parked" doc:"Failed or Suspended"`
	Bytes     int64   `json:"bytes" doc:"Of those that are not parked"`
	OldestDue float64 `json:"oldest_due_seconds" doc:"For which the first has been due"`
}

// BandView is a band with the time until what is in it has left the stage.
type BandView struct {
	QueueBand

	Empty   *Span  `json:"empty_seconds" doc:"Until what waits and runs has left the stage, at the present rate, in seconds; null: not known"`
	Unknown string `json:"empty_unknown" doc:"Why that is not known"`
}

// QueueDatabase is how the database of the queue stands.
type QueueDatabase struct {
	Notify    float64         `json:"notify_usage" doc:"Share of the queue of NOTIFY that is in use"`
	Tables    []TableView     `json:"tables"`
	Snapshots []SnapshotView  `json:"oldest_snapshots" doc:"What keeps vacuum from dead rows, the oldest of each kind"`
	Services  []QueueServices `json:"services"`
}

// TableView is what vacuum has to do for a table that the queue writes much.
type TableView struct {
	Table string `json:"table"`
	Live  int64  `json:"live_rows"`
	Dead  int64  `json:"dead_rows"`
}

// SnapshotView is what keeps vacuum from dead rows: the oldest of its kind.
type SnapshotView struct {
	Kind         string  `json:"kind" enum:"transaction,prepared,slot,standby"`
	Seconds      float64 `json:"age_seconds"` // of what has no time of its own, since the first hand-off that it holds on to
	Transactions int64   `json:"transactions" doc:"How many began since"`
	Name         string  `json:"name"`
}

// QueueServices is how a service stands for all workers.
type QueueServices struct {
	Service string `json:"service"`
	Held    bool   `json:"held"`
	Failing int64  `json:"workers_failing"` // workers that see it fail
}

// QueueView is the queue as far as a caller may see it.
type QueueView struct {
	At       time.Time      `json:"at" doc:"When it was read"`
	Age      float64        `json:"age_seconds" doc:"It is read every 5 seconds at most"`
	Total    QueueBand      `json:"total"`
	Bands    []BandView     `json:"bands"`
	Workers  []Worker       `json:"workers" doc:"Those that lived at that moment; null for those who may not list workers"`
	Database *QueueDatabase `json:"database" doc:"null for people of an institution"`
}

// MatrixView is the queue by institution, stage and size band.
type MatrixView struct {
	At         time.Time        `json:"at" doc:"When it was read"`
	Age        float64          `json:"age_seconds"`
	Partitions []QueuePartition `json:"partitions" doc:"One for each institution, stage and size band that has items"`
}

// HistoryView is what came to an end, by hours.
type HistoryView struct {
	Age   float64 `json:"age_seconds"`
	Hours []Ended `json:"hours" doc:"Hours in which items of an action came to an end with a status"`
}

// StageList are the stages, with the pause of what has no items.
type StageList struct {
	Items  []StageSettings `json:"items"`
	Fixity StagePause      `json:"fixity_checks" doc:"Paused like a stage, as /stages/Fixity Check/Fixity Check"`
	Names  []Stage         `json:"names" doc:"Of all stages, and then of those that were removed: items may be at them"`
	Age    float64         `json:"age_seconds" doc:"Of the numbers of items"`
}
