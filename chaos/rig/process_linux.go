package rig

import "syscall"

// dieWithUs has the kernel kill a child when the harness dies, however that comes.
func dieWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
