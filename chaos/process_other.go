//go:build !linux

package main

import "syscall"

func dieWithUs(*syscall.SysProcAttr) {}
