package devstack

import "syscall"

// dieWithParent has the kernel signal the process when the thread that starts
// it ends, so that even a guard that is killed leaves no server behind.
func dieWithParent(a *syscall.SysProcAttr, s syscall.Signal) { a.Pdeathsig = s }
