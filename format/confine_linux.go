package format

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Unconfined lists what this kernel lacks to keep the children from all but their own
// work; none if it has everything.
func Unconfined() (lacks []string) {
	if version, err := llsys.LandlockGetABIVersion(); err != nil || version < 1 {
		lacks = append(lacks, "Landlock (files and network)")
	}
	if auditArch() == 0 || seccompMissing() {
		lacks = append(lacks, "seccomp filters (system calls)")
	}
	return lacks
}

// hide keeps other processes of the same user from this one's memory and
// environment, which hold credentials. Children do not inherit it.
func hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// confine takes from the process what it does not need to identify formats: other
// files than those in dir, the network, other processes, and programs. What the kernel
// lacks is passed over; Unconfined tells of it.
func confine(dir string) error {
	if err := errors.Join(hide(), unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); err != nil {
		return err
	}
	if _, err := llsys.LandlockGetABIVersion(); err == nil {
		err := landlock.V6.BestEffort().Restrict(
			landlock.RWDirs(dir), landlock.PathAccess(llsys.AccessFSRemoveDir, filepath.Dir(dir))) // which is removed in the end
		if err != nil {
			return fmt.Errorf("restrict files and network: %w", err)
		}
	}
	if auditArch() == 0 || seccompMissing() {
		return nil
	}
	return filterCalls()
}

// auditArch is what the kernel calls the architecture; 0: there is no filter for it.
func auditArch() uint32 {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64
	}
	return 0
}

func seccompMissing() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))) //nolint:gosec // as the kernel wants it
	return errno != 0
}

// refusedCalls reach the network, other processes, programs and the kernel itself.
// io_uring would do some of it past the filter. Go's threads signal each other by
// tgkill, which is left to them.
func refusedCalls() []uint32 {
	return []uint32{
		unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
		unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_IO_URING_SETUP, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV,
		unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_MOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD,
		unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_SEND_SIGNAL,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	}
}

// filterCalls has all threads of the process get EPERM for the refused calls, and for
// those of another architecture.
func filterCalls() error {
	const number, arch = 0, 4 // where they stand in the kernel's seccomp_data
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch()},
		refuse,
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: 0x40000000}, // calls of x32
		refuse,
	}
	for _, call := range refusedCalls() {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call}, refuse)
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // some dozens
	// The thread that asks has to have given up new privileges; the others do with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))) //nolint:gosec // as the kernel wants it
	if errno != 0 || thread != 0 {
		return fmt.Errorf("filter system calls (thread %d): %w", thread, errno)
	}
	return nil
}
