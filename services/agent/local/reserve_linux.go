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
