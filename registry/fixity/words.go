package fixity

import (
	"fmt"
	"math"
	"time"
)

// Promised reports whether anything is promised about the copies in a target.
func (t Target) Promised() bool { return t.Mode != "off" }

// InTime is [InTime] of the target.
func (t Target) InTime() string { return InTime(t.Compliance) }

// InTime is a share of copies for people. It is rounded down, so that only all is 100 %. "" is
// where nothing is promised.
func InTime(compliance *float64) string {
	if compliance == nil {
		return ""
	}
	return fmt.Sprintf("%.2f %%", math.Floor(*compliance*100)/100)
}

// Standing says in sentences how the promise is kept. number writes a number.
func (s Status) Standing(number func(int64) string) (said []string) {
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

// Outlook says when what is overdue will be checked; in writes how long that is from now.
func (s Status) Outlook(in func(time.Duration) string) string {
	switch {
	case s.Overdue == 0:
		return "Nothing is overdue."
	case s.due() == 0:
		return "What is overdue waits for reports of the providers."
	case s.Paused:
		return "Checks are paused, so what is overdue is not checked."
	case s.DoneAt == nil:
		return "At the present rate not all of this will ever be checked: more becomes due than is checked."
	}
	return fmt.Sprintf("At the present rate all of this will be checked in %s.", in(s.DoneAt.Sub(s.At)))
}
