// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confineThread has the kernel refuse some calls to the programs that this thread starts. It adds to the filter of the container, which
// knows capabilities but not paths: with the one that lets a program read every file, files can be opened by number past all mounts, and a
// mount that is read-only keeps nobody from connecting to a socket.
func confineThread(unconnected bool) error {
	arch, known := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("privileges of a package need a processor of type amd64 or arm64, and this is %s", runtime.GOARCH)
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		isEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		isAbove = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		answer  = unix.BPF_RET | unix.BPF_K
		deny    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		x32     = 0x40000000 // numbers of its system calls begin here
	)
	family := uint32(unix.AF_VSOCK)
	if unconnected {
		family = unix.AF_UNIX
	}
	// The data are those of struct seccomp_data: the number of the call, the architecture, and from the 16th byte its arguments.
	program := []unix.SockFilter{
		{Code: load, K: 4}, {Code: isEqual, K: arch, Jt: 1}, {Code: answer, K: unknown},
		{Code: load, K: 0}, {Code: isAbove, K: x32, Jf: 1}, {Code: answer, K: unknown},
		{Code: isEqual, K: unix.SYS_OPEN_BY_HANDLE_AT, Jf: 1}, {Code: answer, K: deny},
		{Code: isEqual, K: unix.SYS_IO_URING_SETUP, Jf: 1}, {Code: answer, K: unknown}, // its calls pass no filter
		{Code: isEqual, K: unix.SYS_SOCKET, Jf: 4},
		{Code: load, K: 16}, {Code: isEqual, K: family, Jt: 1}, {Code: isEqual, K: unix.AF_VSOCK, Jf: 1}, {Code: answer, K: deny},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	whole := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confining a step: %w", err)
	}
	//nolint:gosec // G103: the kernel reads the filter from memory
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&whole)), 0, 0); err != nil {
		return fmt.Errorf("confining a step: %w", err)
	}
	return nil
}
