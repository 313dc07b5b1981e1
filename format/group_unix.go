//go:build unix

package format

import "syscall"

// ownGroup keeps an interrupt at the terminal from a child: its parent gets it too, and
// ends the child in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
