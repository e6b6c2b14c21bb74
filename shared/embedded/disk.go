package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Disk is what is under the store of a server. A server that once could not write a stream does not write it again, though there may
// be room by then, and one whose files were removed writes into files that nobody finds: it has to be started anew.
type Disk struct {
	folder string // of the server's settings
	was    os.FileInfo
	away   error // why nothing can be written; nil: it can
}

// probeBytes is what a look writes: more than a server writes at a time, so that a disk counts as full before one is.
const probeBytes = 1 << 20

// NewDisk begins to watch the store of a server that runs, in the folder of its settings.
func NewDisk(folder string) (*Disk, error) {
	was, err := os.Stat(streams(folder))
	return &Disk{folder: folder, was: was}, err
}

// streams is where a server keeps its streams.
func streams(folder string) string { return filepath.Join(folder, "jetstream") }

// Look tells what is new about the disk, each thing once, and whether the server has to be started anew.
func (d *Disk) Look() (news string, anew bool) {
	is, err := os.Stat(streams(d.folder))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("NATS' store in %s was removed: NATS begins with an empty one, and the nodes bring what they hold", d.folder), true
	case err == nil && !os.SameFile(is, d.was):
		return fmt.Sprintf("NATS' store in %s is another one: NATS goes on with that", d.folder), true
	}
	before := d.away
	d.away = Probe(d.folder)
	switch {
	case d.away != nil && (before == nil || before.Error() != d.away.Error()):
		return fmt.Sprintf("NATS cannot write to its store: %v; training goes on as it is, and nothing else does: make room, or mend the disk",
			d.away), false
	case d.away == nil && before != nil:
		return "NATS can write to its store again", true
	}
	return "", false
}

// Probe writes a file into a folder, down to the disk, and removes it. The error names the folder.
func Probe(folder string) (err error) {
	file, err := os.Create(filepath.Join(folder, "probe"))
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, probeBytes))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}
