package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// Postgres sorts the SQLSTATE of an error of PostgreSQL (PostgreSQL's manual,
// appendix A). What its rules refuse is a statement of ours, and no failure of any
// content. ok is false for what is no SQLSTATE.
func Postgres(state string) (k Kind, ok bool) {
	switch state {
	case "25006": // read_only_sql_transaction: a standby
		return ReadOnly, true
	case "53100": // disk_full
		return Full, true
	case "57P04", "3D000": // database_dropped, invalid_catalog_name
		return Missing, true
	case "55P03", "55006", "57014": // lock_not_available, object_in_use, query_canceled
		return Overloaded, true
	case "42501": // insufficient_privilege
		return Denied, true
	case "42P01", "42703", "42883": // an undefined table, column or function: the schema is of another version
		return WrongAnswer, true
	}
	if len(state) < 2 {
		return "", false
	}
	switch state[:2] {
	case "08", "57", "58", "F0", "XX": // connection, operator intervention, system error, configuration file, internal
		return Unavailable, true
	case "40", "53": // transaction rollback, insufficient resources
		return Overloaded, true
	case "28": // invalid authorization
		return Denied, true
	}
	return Refused, true
}

// OfRedis sorts an error that Redis gave as an answer, by its first word
// (Redis's manual, "Redis error replies").
func OfRedis(message string) Kind {
	// Before Redis 7 a script's error came as "ERR Error running script (…): -READONLY …".
	if _, inner, ok := strings.Cut(message, ": -"); ok && strings.HasPrefix(message, "ERR Error running script") {
		message = inner
	}
	word, _, _ := strings.Cut(message, " ")
	switch word {
	case "OOM":
		return Full
	case "READONLY":
		return ReadOnly
	case "MISCONF", "NOREPLICAS": // it cannot persist, or has too few replicas, and takes no writes
		return ReadOnly
	case "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNKILLABLE", "NOTREADY":
		return Unavailable
	case "BUSY", "TRYAGAIN", "BUSYKEY":
		return Overloaded
	case "MOVED", "ASK": // it is a node of a cluster, and not the Redis that was asked for
		return WrongAnswer
	case "NOAUTH", "WRONGPASS", "NOPERM", "DENIED":
		return Denied
	}
	switch {
	case strings.HasPrefix(message, "ERR max number of clients"):
		return Overloaded
	case strings.HasPrefix(message, "ERR invalid password"), strings.HasPrefix(message, "ERR Client sent AUTH"),
		strings.HasPrefix(message, "ERR AUTH "), strings.HasPrefix(message, "ERR operation not permitted"):
		return Denied
	case strings.HasPrefix(message, "ERR DB index is out of range"), strings.HasPrefix(message, "ERR invalid DB index"):
		return Missing
	}
	return Refused // a command that it does not know, or of ours that is wrong
}

// Network sorts what may go wrong on the way to any service: names, connections,
// TLS, silence. said is a few words for people.
func Network(err error) (k Kind, said string, ok bool) {
	dns, unnamed := errors.AsType[*net.DNSError](err)
	timed, mayTime := errors.AsType[net.Error](err)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return "", "", false
	case unnamed:
		return Unavailable, "the name " + dns.Name + " is not found", true
	case is[x509.UnknownAuthorityError](err), is[x509.HostnameError](err), is[x509.CertificateInvalidError](err), is[*tls.CertificateVerificationError](err):
		return Denied, "its certificate is not trusted", true
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err), errors.Is(err, http.ErrSchemeMismatch):
		return WrongAnswer, "it does not speak TLS correctly", true
	case errors.Is(err, syscall.ECONNREFUSED):
		return Unavailable, "connection refused", true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED), errors.Is(err, net.ErrClosed):
		return Unavailable, "connection broken", true
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN), errors.Is(err, syscall.ENETDOWN):
		return Unavailable, "no route to the host", true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), mayTime && timed.Timeout():
		return Unavailable, "no answer before the timeout", true
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return Unavailable, "connection broken", true
	case is[*net.OpError](err):
		return Unavailable, "connection failed", true
	}
	return "", "", false
}

// Host sorts what may go wrong with this host: nil if err is none of it.
func Host(err error) *Error {
	var k Kind
	service := Disk
	switch {
	case err == nil, is[*Error](err):
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		k = Full
	case errors.Is(err, syscall.EROFS):
		k = ReadOnly
	case errors.Is(err, syscall.EIO):
		k = Unavailable
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EAGAIN):
		service, k = Memory, Full
	case is[*os.PathError](err) && errors.Is(err, os.ErrPermission):
		k = Denied
	case is[*os.PathError](err) && errors.Is(err, os.ErrNotExist):
		k = Missing
	default:
		return nil
	}
	said := ""
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		said = no.Error()
	}
	return &Error{Service: service, Kind: k, Said: said, Err: err}
}

// is reports whether there is an error of a type in the tree of err.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
