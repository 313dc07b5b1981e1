//go:build !linux

package devstack

import "syscall"

// dieWithParent does nothing where the kernel has no such service.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
