package format

import (
	"errors"
	"syscall"
)

// Unconfined says what Windows lacks for children that read what strangers send.
func Unconfined() []string { return []string{"child processes that identify formats"} }

// hide refuses, and so no [Identifier] starts: nothing here keeps a child from the
// secrets of its parent.
func hide() error {
	return errors.New("formats cannot be identified on Windows, which has no way to confine the process that reads a file; use Linux or macOS")
}

func confine(string) error { return hide() }

func ownGroup() *syscall.SysProcAttr { return nil }
