package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// warmed is what each source sends before anything is fetched, to widen TCP's window.
const warmed = 4 << 20

// settled is how long what is on its way takes to arrive, or to be dropped, when nobody is there any more.
const settled = 200 * time.Millisecond

// killDestination kills the destination and starts it again on what its file holds. What it needs are the chunks that are
// not in it. What came over the links and is not in it was on its way, in the process or in the kernel.
func killDestination(_ context.Context, s *scene, result *outcome) error {
	if err := s.destination.Kill(); err != nil {
		return err
	}
	<-s.fetching.Done
	time.Sleep(settled)
	result.seconds = result.struck
	job := s.job(false)
	files, err := filepath.Glob(filepath.Join(job.Dir, "*"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("expected one buffer, got %q", files)
	}
	left, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	result.missing = missing(left)
	if result.missing == 0 || result.missing == state.Bytes {
		return fmt.Errorf("%d of %d bytes were missing: expected that some chunks were there and some were not", result.missing, state.Bytes)
	}
	result.lost = s.carried() - s.zeros - (state.Bytes - result.missing)
	result.bound = result.struck + allow(result.missing, all)
	result.note = fmt.Sprintf("; killed after %.2f s, %d of %d KiB were missing, %d KiB on their way were lost",
		result.struck, result.missing>>10, state.Bytes>>10, result.lost>>10)
	if err := s.destination.Restart(); err != nil {
		return err
	}
	s.fetch(job)
	return nil
}

// carried is the payload that came to the destination so far, with what came twice.
func (s *scene) carried() int64 {
	bytes := int64(0)
	for _, link := range s.links {
		toNear, _ := link.Carried()
		bytes += toNear
	}
	return int64(float64(bytes) * links.Payload)
}

// missing is how many bytes are of chunks that a buffer does not hold.
func missing(buffer []byte) int64 {
	lacks := int64(0)
	_ = state.Each(func(first int64, part []byte) error { // which never fails
		for len(part) > 0 {
			length := min(chunkBytes, len(part))
			if !bytes.Equal(part[:length], buffer[first:][:length]) {
				lacks += int64(length)
			}
			part, first = part[length:], first+int64(length)
		}
		return nil
	})
	return lacks
}
