//go:build unix

package shards

import (
	"os"
	"syscall"
)

// mapped returns a file's bytes, which are written to it however the process ends.
func mapped(file *os.File, bytes int) ([]byte, error) {
	return syscall.Mmap(int(file.Fd()), 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmapped(bytes []byte) error {
	if bytes == nil {
		return nil
	}
	return syscall.Munmap(bytes)
}
