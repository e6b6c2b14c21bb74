package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// Foresee looks behind the caller's back whether the node's folder takes a part under a plan that it takes up, and tells as of a part that
// could not be written where it does not: the first one is written hundreds of steps later.
func (s *Snapshots) Foresee(plan *events.Plan, digest string) {
	units := plan.UnitsOf(s.owner.Node)
	if len(units) == 0 {
		return
	}
	for _, t := range s.tiers {
		if t.lies == "" {
			continue
		}
		s.writing.Go(func() {
			if err := t.takes(s.context, s.bytesOf(units)); err != nil {
				s.unwritten("no snapshot can be written", t, retention.ID{Step: plan.ResumeStep, Plan: digest}, units, err)
			}
		})
	}
}

// bytesOf returns how long the units are, as the job says.
func (s *Snapshots) bytesOf(units []events.Range) (bytes int64) {
	lengths := s.owner.Job.UnitBytes()
	for unit := range events.Each(units) {
		if unit < len(lengths) {
			bytes += lengths[unit]
		}
	}
	return bytes
}

// takes reports why a folder would not take a part of so many bytes. Older parts of this node may be given up for it.
func (t *tier) takes(ctx context.Context, bytes int64) error {
	if bytes > t.bound.Bytes {
		return fmt.Errorf("%w for %d bytes within REKNIT_SNAPSHOT_BYTES, %d", errNoRoom, bytes, t.bound.Bytes)
	}
	if err := probe(t.lies); err != nil {
		return err
	}
	left, known := free(t.lies)
	lies, err := t.list(ctx)
	if !known || err != nil {
		return err
	}
	for _, part := range lies.parts {
		if part.Node == t.node {
			left += part.Bytes
		}
	}
	if left < bytes {
		return noRoomFor{bytes, syscall.ENOSPC}
	}
	return nil
}

// probes is how the names begin of files that are written to see whether a folder takes any.
const probes = ".probe-"

// probe writes a file where parts are to lie, and has it gone before it is written, so that it does not stay if this process is killed. It
// removes those that stayed before. Another process may do so with this one.
func probe(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	lies, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range lies {
		if entry.Type().IsRegular() && strings.HasPrefix(entry.Name(), probes) {
			_ = os.Remove(filepath.Join(folder, entry.Name())) // the file of another user stays
		}
	}
	file, err := os.CreateTemp(folder, probes)
	if err != nil {
		return err
	}
	if err = os.Remove(file.Name()); err == nil || errors.Is(err, fs.ErrNotExist) {
		_, err = file.Write(make([]byte, os.Getpagesize()))
	}
	return errors.Join(err, file.Close())
}
