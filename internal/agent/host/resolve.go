// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's limit for one path.
const maxLinks = 40

// ErrUnsafe means that a link of a user leads to what is not that user's: root would read or write there what that user may not.
var ErrUnsafe = errors.New("a link that is not root's leads to files of another owner; it is not followed")

// resolvePath finds a path inside the root mount and opens it with O_PATH. The kernel resolves a path without links, walkInRoot any other.
func (r *Root) resolvePath(name string, dir bool) (*os.File, error) {
	name, err := cleanPath(name)
	if err != nil {
		return nil, err
	}
	flags := unix.O_PATH | unix.O_CLOEXEC
	if dir {
		flags |= unix.O_DIRECTORY
	}
	rel := strings.TrimPrefix(name, "/")
	if rel == "" {
		rel = "."
	}
	fd := -1
	if err = unix.ENOSYS; !r.walk {
		fd, err = openInRoot(int(r.fd.Fd()), rel, flags)
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		fd, err = walkInRoot(int(r.fd.Fd()), rel, flags)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "opening on the host", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openInRoot uses openat2, which returns EAGAIN when a rename happens at the same time.
func openInRoot(root int, rel string, flags int) (fd int, err error) {
	how := &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	for range 32 {
		fd, err = unix.Openat2(root, rel, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// walkInRoot resolves a path one element at a time. It keeps a descriptor for every parent directory, so that ".." never
// leaves the root. Like systemd-tmpfiles it refuses to go by a link from what is a user's to what is another's. Directories below one of
// a user are entered whoever owns them, because no user can put such a directory there.
func walkInRoot(root int, rel string, flags int) (int, error) {
	const hold = unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW
	top, err := unix.Openat(root, ".", hold|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	above := []int{top}
	defer func() {
		for _, fd := range above {
			_ = unix.Close(fd)
		}
	}()
	closeTo := func(kept int) {
		for _, fd := range above[kept:] {
			_ = unix.Close(fd)
		}
		above = above[:kept]
	}
	at, err := ownerOf(top)
	if err != nil {
		return -1, err
	}
	rest, links := strings.Split(rel, "/"), 0
	for isByLink := false; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		target, isLink := "", false
		switch part {
		case "", ".":
		case "..":
			closeTo(max(1, len(above)-1))
		default:
			fd, err := unix.Openat(above[len(above)-1], part, hold, 0)
			if err != nil {
				return -1, err
			}
			above = append(above, fd)
			if target, isLink, err = readLink(fd); err != nil {
				return -1, err
			}
		}
		next, err := ownerOf(above[len(above)-1])
		if err != nil {
			return -1, err
		}
		if (isByLink || isLink || part == "..") && at != 0 && at != next {
			return -1, ErrUnsafe
		}
		at, isByLink = next, isLink
		if !isLink {
			continue
		}
		closeTo(len(above) - 1)
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			closeTo(1)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	last := above[len(above)-1]
	if flags&unix.O_DIRECTORY != 0 {
		return unix.Openat(last, ".", flags, 0)
	}
	return unix.FcntlInt(uintptr(last), unix.F_DUPFD_CLOEXEC, 0)
}

func ownerOf(fd int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Uid, err
}

// readLink reads the link that fd refers to, if it is one.
func readLink(fd int) (string, bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	return string(buf[:n]), true, err
}

// procPath names an open descriptor as a path.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// SocketPath is a path by which the agent reaches a socket of the host. The directory of the socket stays open until
// done is called, and the path is shorter than the limit of about a hundred bytes for socket addresses.
func (r *Root) SocketPath(name string) (at string, done func(), err error) {
	fd, err := r.resolvePath(name, false)
	if err != nil {
		return "", nil, err
	}
	st, err := fd.Stat()
	if err == nil && st.Mode()&fs.ModeSocket == 0 {
		err = fmt.Errorf("%s on the host is not a socket", name)
	}
	if err != nil {
		return "", nil, errors.Join(err, fd.Close())
	}
	return procPath(fd), func() { _ = fd.Close() }, nil
}
