package record

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FixityDayAhead is what the checks come to within 24 hours.
type FixityDayAhead struct {
	From    time.Time `json:"from"`
	Due     int64     `json:"becomes_due"`
	Checked int64     `json:"checked"`
	Overdue int64     `json:"overdue"` // at the end
}

// A FixityPolicy is how often the copies in a target are to be checked, and how.
type FixityPolicy struct {
	Target      string     `json:"target"`
	Provider    string     `json:"provider"`
	Mode        string     `json:"mode"` // read, report (by reports of the provider alone) or off
	Days        *int       `json:"days"` // between two checks; nil: as is configured
	PausedUntil *time.Time `json:"paused_until"`
	PauseReason string     `json:"pause_reason"`
}

// FixityRequested is what was asked for of a file or an object.
type FixityRequested struct {
	Identifier string `json:"identifier"`
	Target     string `json:"target"`
	Files      int64  `json:"files"`
	Copies     int64  `json:"copies"`
	InProgress int64  `json:"in_hand"`          // of these, copies that are being checked at this moment
	Recent     int64  `json:"recently_checked"` // further copies, which are not checked since they just were
}

// A FixityBadCopy is a copy that failed its fixity check.
type FixityBadCopy struct {
	Failure       int64     `json:"failure"`
	File          string    `json:"file"`
	Institution   string    `json:"institution"`
	Target        string    `json:"target"`
	Provider      string    `json:"provider"`
	URL           string    `json:"url" db:"url"`
	Problem       string    `json:"problem"` // altered or missing
	Algorithm     string    `json:"algorithm"`
	Expected      string    `json:"expected"`
	Found         string    `json:"found"` // "" if there was nothing
	FoundAt       time.Time `json:"found_at"`
	SeenAt        time.Time `json:"seen_at"`        // for the last time
	QuarantinedAs string    `json:"quarantined_as"` // where its bytes are kept; "": not yet, or there are none
}

// FixityOtherCopy is another copy of the same file.
type FixityOtherCopy struct {
	StoredCopy

	Bad bool `json:"bad"`
}

// A FixityRepairStop keeps copies of a provider from being repaired.
type FixityRepairStop struct {
	Provider  string    `json:"provider"`
	Reason    string    `json:"reason"`
	StoppedAt time.Time `json:"pulled_at"`
}

// FixityOwn is how it stands with the copies of one institution.
type FixityOwn struct {
	At      time.Time         `json:"at"`
	Targets []FixityOwnTarget `json:"targets"`
	Bad     int64             `json:"bad_copies"`
	Counted bool              `json:"copies_are_counted"` // false: the institution has too many files, and only bad copies are counted
}

// FixityOwnTarget is how it stands with the copies of one institution in a target. What is not
// counted is null.
type FixityOwnTarget struct {
	Target  string     `json:"target"`
	Mode    string     `json:"mode"` // read, report or off
	Days    int        `json:"days"` // between two checks
	Copies  *int64     `json:"copies"`
	Overdue *int64     `json:"overdue"` // nil also if nothing is promised
	Unread  *int64     `json:"never_read"`
	Oldest  *time.Time `json:"oldest_check"` // or since when a copy waits that was never read
	Bad     int64      `json:"bad_copies"`
}

// FixityStatus is how well the promise is kept that each copy is checked every so
// often, and when it will be if it is not.
type FixityStatus struct {
	At         time.Time           `json:"at"`
	Targets    []FixityTarget      `json:"targets"` // in the order of their names
	Copies     int64               `json:"copies"`  // that are to be checked
	Estimated  bool                `json:"copies_are_estimates"`
	Overdue    int64               `json:"overdue"`    // of these, copies whose check is due
	Unread     int64               `json:"never_read"` // of these, copies that nobody has read since they were stored
	Compliance *float64            `json:"compliance"` // per cent of these that are neither overdue nor bad; nil: nothing is promised
	Bad        int64               `json:"bad_copies"` // wherever they are
	Stuck      int64               `json:"cannot_be_checked"`
	Worst      []FixityOverdueCopy `json:"most_overdue"`

	Paused      bool       `json:"paused"` // nothing is claimed until a person or NSQ lets it go on
	PausedBy    *string    `json:"paused_by"`
	PausedAt    *time.Time `json:"paused_at"`
	PauseReason *string    `json:"pause_reason"`

	Allowance int64         `json:"allowance"` // copies that may be taken up until the scheduler runs again
	Fed       int64         `json:"fed"`       // copies that it allowed the last time
	Every     time.Duration `json:"every_ns"`  // time between two times; 0: it never ran
	FedAt     *time.Time    `json:"fed_at"`

	Checks24h int64   `json:"checks_in_24_hours"`
	Bytes24h  int64   `json:"bytes_in_24_hours"`
	Rate      float64 `json:"checks_per_second"` // at present, or as many as are allowed
	Measured  bool    `json:"rate_is_measured"`  // or else as many as are allowed
	Needed    float64 `json:"checks_needed_per_second"`
	KeepsUp   bool    `json:"keeps_up"` // false: the allowance or the workers are too small

	// When everything will be done that is due then, at this rate; nil if it will
	// never be, or checks are paused.
	DoneAt *time.Time `json:"done_at"`

	Ahead []FixityDayAhead `json:"next_days"` // at this rate
}

// FixityTarget is how it stands with the copies in a target.
type FixityTarget struct {
	Target      string     `json:"target"`
	Provider    string     `json:"provider"`
	Mode        string     `json:"mode"` // read, report or off
	Days        int        `json:"days"` // between two checks
	ByDefault   bool       `json:"days_by_default"`
	Copies      int64      `json:"copies"`
	Overdue     int64      `json:"overdue"` // 0 if nothing is promised
	Unread      int64      `json:"never_read"`
	Compliance  *float64   `json:"compliance"`   // nil: nothing is promised, or there are none
	Oldest      *time.Time `json:"oldest_check"` // last check of the copy that waits for longest; or since when it waits, if it was never read
	Running     int64      `json:"running"`
	Waiting     int64      `json:"waiting"` // asked for, or to be tried again
	Stuck       int64      `json:"cannot_be_checked"`
	Bad         int64      `json:"bad_copies"`
	BadInTime   int64      `json:"-"` // of these, copies that are not overdue
	Checks24h   int64      `json:"checks_in_24_hours" db:"checks_24h"`
	Bytes24h    int64      `json:"bytes_in_24_hours" db:"bytes_24h"`
	PausedUntil *time.Time `json:"paused_until"`
	PauseReason string     `json:"pause_reason"`
}

// FixityOverdueCopy is a copy whose check is due.
type FixityOverdueCopy struct {
	File    string        `json:"file"`
	Target  string        `json:"target"`
	Checked *time.Time    `json:"last_check"` // nil: nobody has read it yet
	Late    time.Duration `json:"late_ns"`
	Error   string        `json:"error"` // why the last try said nothing
}

// Promised reports whether anything is promised about the copies in a target.
func (t FixityTarget) Promised() bool { return t.Mode != "off" }

// InTime is [InTime] of the target.
func (t FixityTarget) InTime() string { return InTime(t.Compliance) }

// Standing says in sentences how the promise is kept. number writes a number.
func (s FixityStatus) Standing(number func(int64) string) (said []string) {
	about := ""
	if s.Estimated {
		about = "about "
	}
	are := " copies are"
	if s.Copies == 1 {
		are = " copy is"
	}
	switch {
	case s.Copies == 0:
		return []string{"There is no copy whose check is promised."}
	case s.Overdue == 0:
		said = append(said, fmt.Sprintf("No check is overdue: %s of %s%s%s not bad.", InTime(s.Compliance), about, number(s.Copies), are))
	default:
		said = append(said, fmt.Sprintf("%s of %s%s%s overdue: %s are neither overdue nor bad.", number(s.Overdue), about, number(s.Copies), are, InTime(s.Compliance)))
	}
	if s.Unread > 0 {
		said = append(said, fmt.Sprintf("Of these, verified when stored and not read since: %s%s.", about, number(s.Unread)))
	}
	return said
}

// Outlook says when what is overdue will be checked, and whether the checks keep up; in writes
// how long that is from now, and number a number.
func (s FixityStatus) Outlook(number func(int64) string, in func(time.Duration) string) string {
	said := fmt.Sprintf("At the present rate all of this will be checked in %s.", in(s.doneIn()))
	switch {
	case s.Overdue == 0:
		said = "Nothing is overdue."
	case s.Due() == 0:
		said = "What is overdue waits for reports of the providers."
	case s.Paused:
		said = "Checks are paused, so what is overdue is not checked."
	case s.DoneAt == nil:
		said = "At the present rate not all of this will ever be checked: more becomes due than is checked."
	}
	if what, next := s.Short(number); what != "" {
		said += " " + what + " " + next
	}
	return said
}

func (s FixityStatus) doneIn() time.Duration {
	if s.DoneAt == nil {
		return 0
	}
	return s.DoneAt.Sub(s.At)
}

// FixityNeeded is how many checks a second keep the promises of targets that are read, in the
// mean.
func FixityNeeded(targets []FixityTarget) (needed float64) {
	for _, t := range targets {
		if t.Mode == "read" && t.Days > 0 {
			needed += float64(t.Copies) / (24 * time.Hour * time.Duration(t.Days)).Seconds()
		}
	}
	return needed
}

// Short says why the checks cannot keep up, and what to do about it; "" if they can, or are
// paused. Fewer checks than are needed count only when a copy has waited for more than a
// day: an archive may well check less while less is due.
func (s FixityStatus) Short(number func(int64) string) (what, next string) {
	allowed, aDay := 0.0, func(rate float64) string { return number(int64(rate * (24 * time.Hour).Seconds())) }
	if s.Every > 0 {
		allowed = float64(s.Fed) / s.Every.Seconds()
	}
	var is string
	switch late := s.late(); {
	case s.Paused || s.Needed == 0:
		return "", ""
	case s.Every > 0 && allowed < s.Needed:
		is = fmt.Sprintf("a release of %s every %v allows %s", number(s.Fed), s.Every, aDay(allowed))
		next = fmt.Sprintf("Unset FAROL_FIXITY_FEED, so that releases follow what is due, or set it to %s or more.", number(int64(s.Needed*s.Every.Seconds())+1))
	case late && (s.FedAt == nil || s.At.Sub(*s.FedAt) > 3*s.Every):
		is = "no release was made lately"
		next = "Run `farol schedule`, with FAROL_FIXITY_FEED_INTERVAL above 0."
	case late && s.Measured && s.Rate < s.Needed:
		is = fmt.Sprintf("workers make %s, of %s that are allowed", aDay(s.Rate), aDay(allowed))
		next = "Raise FAROL_FIXITY_SLOTS, or start more workers."
	default:
		return "", ""
	}
	return fmt.Sprintf("Fixity checks cannot keep up: %s need %s checks a day, and %s.", s.load(number), aDay(s.Needed), is), next
}

// load is how many copies are read how often.
func (s FixityStatus) load(number func(int64) string) string {
	copies, about := map[int]int64{}, ""
	for _, t := range s.Targets {
		if t.Mode == "read" && t.Copies > 0 {
			copies[t.Days] += t.Copies
		}
	}
	if s.Estimated {
		about = "about "
	}
	var list []string
	for _, days := range slices.Sorted(maps.Keys(copies)) {
		list = append(list, fmt.Sprintf("%s%s copies every %d days", about, number(copies[days]), days))
	}
	return strings.Join(list, " and ")
}

// late reports whether a copy that could be read has been due for more than a day.
func (s FixityStatus) late() bool {
	return slices.ContainsFunc(s.Targets, func(t FixityTarget) bool {
		return t.Mode == "read" && t.PausedUntil == nil && t.Oldest != nil && t.Oldest.AddDate(0, 0, t.Days+1).Before(s.At)
	})
}

// Due is how many copies in targets that are read are overdue.
func (s FixityStatus) Due() (n int64) {
	for _, t := range s.Targets {
		if t.Mode == "read" && t.Copies > 0 {
			n += t.Overdue
		}
	}
	return n
}

// FixityView is the status of fixity checks, as far as a caller may see it.
type FixityView struct {
	Age         float64       `json:"age_seconds" doc:"It is computed once a minute at most"`
	Archive     *FixityStatus `json:"archive" doc:"null for people of an institution"`
	Institution *FixityOwn    `json:"institution" doc:"Of the caller's own; null for those who see all"`
}
