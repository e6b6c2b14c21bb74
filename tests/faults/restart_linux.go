package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// warmed is what each source sends before anything is fetched, to widen TCP's window.
const warmed = 4 << 20

// settled is how long what is on its way takes to arrive, or to be dropped, when nobody is there any more.
const settled = 200 * time.Millisecond

// killDestination kills the destination and starts it again. The next process has nothing, and all bytes come again.
// Bytes that came over the links and had not come to the killed process were on their way, in the process or in the
// kernel.
func killDestination(_ context.Context, s *scene, result *outcome) error {
	if err := s.destination.Kill(); err != nil {
		return err
	}
	<-s.fetching.Done
	time.Sleep(settled)
	result.lost = s.carried() - s.apart - result.came
	result.seconds = result.struck
	result.bound = result.struck + start.Seconds() + allow(state.Bytes, all) // TCP starts anew
	result.note = fmt.Sprintf("; killed after %.2f s, %d KiB had come, %d KiB on their way were lost",
		result.struck, result.came>>10, result.lost>>10)
	if err := s.destination.Restart(); err != nil {
		return err
	}
	s.apart = s.carried()
	s.fetch(s.job(false))
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
