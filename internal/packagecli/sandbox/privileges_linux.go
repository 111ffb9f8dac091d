// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptCapabilities are those of the programs of a test: what Docker leaves to a container, without MKNOD and NET_RAW. The process that starts them
// has more, so that the kernel lets none of them look into it.
var keptCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

// deniedCalls are the system calls that programs of a test may not make: those that change mounts and namespaces, look into other processes, open
// files that no path leads to, use the keys of this machine's user, or reach into the kernel.
var deniedCalls = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_IO_URING_SETUP, unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SYSLOG, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
}

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// dropPrivileges limits the programs that this thread starts to the capabilities and system calls that a step may use.
func dropPrivileges() error {
	for c := range uintptr(64) {
		if slices.Contains(keptCapabilities, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("giving up capability %d: %w", c, err)
		}
	}
	return filterCalls()
}

// filterCalls has the kernel refuse deniedCalls to the programs that this thread starts.
func filterCalls() error {
	arch, known := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("testing a package needs a processor of type amd64 or arm64, and this is %s", runtime.GOARCH)
	}
	const (
		load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		isEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		isAbove  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		hasFlag  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer   = unix.BPF_RET | unix.BPF_K
		deny     = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		otherABI = 0x40000000 // numbers of system calls of x32 begin here
	)
	// The data are those of struct seccomp_data: the number of the call, the architecture, and from the 16th byte its arguments.
	program := []unix.SockFilter{
		{Code: load, K: 4}, {Code: isEqual, K: arch, Jt: 1}, {Code: answer, K: unknown},
		{Code: load, K: 0}, {Code: isAbove, K: otherABI, Jf: 1}, {Code: answer, K: unknown},
	}
	for _, call := range deniedCalls {
		program = append(program, unix.SockFilter{Code: isEqual, K: call, Jf: 1}, unix.SockFilter{Code: answer, K: deny})
	}
	program = append(program, []unix.SockFilter{
		// The flags of clone3 are in memory, where a filter does not see them; programs use clone instead when there is none.
		{Code: isEqual, K: unix.SYS_CLONE3, Jf: 1}, {Code: answer, K: unknown},
		{Code: isEqual, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: 16}, {Code: hasFlag, K: newNamespaces, Jf: 1}, {Code: answer, K: deny}, {Code: answer, K: unix.SECCOMP_RET_ALLOW},
		// No namespace separates these sockets: they reach the hypervisor and the machine.
		{Code: isEqual, K: unix.SYS_SOCKET, Jf: 3},
		{Code: load, K: 16}, {Code: isEqual, K: unix.AF_VSOCK, Jf: 1}, {Code: answer, K: deny},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}...)
	whole := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	//nolint:gosec // G103: the kernel reads the filter from memory
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&whole)), 0, 0); err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	return nil
}
