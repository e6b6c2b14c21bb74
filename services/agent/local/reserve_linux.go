package local

import (
	"errors"
	"math"
	"os"
	"syscall"
)

// reserve takes the room of a file at once. A lack of room is an error here, and not the end of the process that first
// writes there: memory that is full kills it.
func reserve(file *os.File, bytes int64) error {
	if bytes > free(file.Name()) {
		return syscall.ENOSPC // without filling what there is
	}
	for {
		err := syscall.Fallocate(int(file.Fd()), 0, 0, bytes)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP):
			return nil
		default:
			return err
		}
	}
}

// free returns how many bytes more the file system of a path takes, as far as it tells.
func free(path string) int64 {
	var system syscall.Statfs_t
	if syscall.Statfs(path, &system) != nil {
		return math.MaxInt64
	}
	return int64(system.Bavail) * system.Bsize
}

// Modes of fallocate(2): a hole, which leaves the file's length as it is.
const punchHole = 0x2 | 0x1

// release gives the room of a file back, to the end of its last page. A process that has mapped the file sees zeros. A
// file system that cannot give room back keeps it.
func release(file *os.File, bytes int64) error {
	page := int64(os.Getpagesize())
	err := syscall.Fallocate(int(file.Fd()), punchHole, 0, (bytes+page-1)/page*page)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	return err
}
