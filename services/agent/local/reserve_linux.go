package local

import (
	"errors"
	"os"
	"syscall"
)

// reserve takes the room of a file at once. Where there is none that is an error here, and not the end of the process
// that first writes there: memory that is full kills it.
func reserve(file *os.File, bytes int64) error {
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &system); err == nil && bytes > int64(system.Bavail)*system.Bsize {
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

// Modes of fallocate(2): a hole, which leaves the file's length as it is.
const punchHole = 0x2 | 0x1

// release gives the room of a file back. Who has mapped it sees zeros. A file system that cannot keeps it.
func release(file *os.File, bytes int64) error {
	err := syscall.Fallocate(int(file.Fd()), punchHole, 0, bytes)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	return err
}
