//go:build !linux

package rig

import "syscall"

func dieWithUs(*syscall.SysProcAttr) {}
