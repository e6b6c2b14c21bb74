// Package files writes what is read again after whoever wrote it was killed.
package files

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file in the place of the one before at once, so that nobody ever reads a part of it. It makes a folder that is missing
// its owner's alone.
func Replace(file string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	next := file + ".next"
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	return os.Rename(next, file)
}
