package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reknit/reknit/events"
)

// killDestination kills the destination and starts it again on what its file holds. What is missing are the parts that are
// not complete; of those, what was there already comes twice.
func killDestination(_ context.Context, s *scene, result *outcome) error {
	if err := s.destination.Kill(); err != nil {
		return err
	}
	<-s.fetching.Done
	result.seconds = result.struck
	job := s.job(false)
	files, err := filepath.Glob(filepath.Join(job.Dir, "*"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("expected one buffer, got %q", files)
	}
	kept, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	result.missing = 0
	for _, part := range job.Parts {
		if there := kept[part.First:part.End]; events.Digest(there) != part.Digest {
			result.missing += part.End - part.First
			result.twice += written(there)
		}
	}
	if result.missing == 0 || result.missing == state.Bytes {
		return fmt.Errorf("%d of %d bytes were missing: expected that some parts were whole and some were not", result.missing, state.Bytes)
	}
	result.bound = result.struck + allow(result.missing, all)
	result.note = fmt.Sprintf("; killed after %.2f s, %d of %d KiB were missing", result.struck, result.missing>>10, state.Bytes>>10)
	if err := s.destination.Restart(); err != nil {
		return err
	}
	s.fetch(job)
	return nil
}

// written is how many bytes of a part that is not complete were stored: the state is random, and has no chunk of zeros.
func written(part []byte) int64 {
	bytesThere := int64(0)
	for len(part) > 0 {
		chunk := part[:min(chunkBytes, len(part))]
		if !bytes.Equal(chunk, make([]byte, len(chunk))) {
			bytesThere += int64(len(chunk))
		}
		part = part[len(chunk):]
	}
	return bytesThere
}
