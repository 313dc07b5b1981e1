// Package fault says whose failure an error is.
//
// A failure belongs to the content (the bag, or the request), to a service that
// Farol needs (PostgreSQL, Redis, a bucket, the virus scanner), or to this
// process (its disk, its memory, its clock). Only a failure of the content may
// cost a work item an attempt. An [Error] says that a failure is of a service or
// of this process, and is made where the error is born: in the package that
// speaks to the service. What carries none is the item's own.
//
// The tables that sort the answers of services are here, all in one place. They
// take codes and texts, so that no other package has to know the libraries.
package fault

import (
	"errors"
	"strings"
)

// A Kind is what is wrong with a service or with this process.
type Kind string

// The kinds. Each is the second half of a stable code, see [Error.Code].
const (
	Unavailable Kind = "unavailable"  // no answer, a broken connection, or an internal error
	Overloaded  Kind = "overloaded"   // it asks for patience
	Denied      Kind = "denied"       // it refuses our credentials, or our rights are too few
	Missing     Kind = "missing"      // a bucket or database that is not there
	Full        Kind = "full"         // no space for more
	ReadOnly    Kind = "read-only"    // it takes no writes
	Skewed      Kind = "skewed"       // its clock and ours differ too much
	WrongAnswer Kind = "wrong-answer" // what it says is no answer to what was asked
	Refused     Kind = "refused"      // it does not take a request that we made, whatever the content
)

// The services whose names are fixed. A bucket is "s3:" and its target's name, or
// the bucket's where it has none.
const (
	Database   = "database"
	Redis      = "redis"
	Scanner    = "virus-scanner"
	Disk       = "disk"       // TMPDIR of this host
	Memory     = "memory"     // of this process
	Identifier = "identifier" // the children of this process that identify formats
	Settings   = "settings"   // what this process was configured with
)

// Bucket names the service that a bucket is.
func Bucket(name string) string { return "s3:" + name }

// An Error is a failure of a service or of this process.
type Error struct {
	Service string // see [Database] and the others, and [Bucket]
	Kind    Kind
	Said    string // what the service said in a few words, such as "403 AccessDenied"; "" if nothing
	Err     error  // the whole; never nil
}

// Error is the text of the whole.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the whole.
func (e *Error) Unwrap() error { return e.Err }

// Code is stable, for programs: what kind of service it is and what is wrong with
// it, such as "storage-denied" or "progress-read-only".
func (e *Error) Code() string {
	class, _, isBucket := strings.Cut(e.Service, ":")
	switch {
	case isBucket:
		class = "storage"
	case class == Redis:
		class = "progress"
	}
	return class + "-" + string(e.Kind)
}

// In finds the first Error in the tree of err; nil if there is none.
func In(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}
