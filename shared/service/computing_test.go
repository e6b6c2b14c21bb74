package service

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The clock is the test's own.
func TestAMachineThatComputesKeepsItsLeaseUntilItIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began, done := newHealth(nil), time.Now(), make(chan struct{})
		h.begin()
		go h.think("restoration.requested of g2-1", func() { <-done })
		synctest.Wait()
		after := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }
		after(standstill + time.Second)
		if err := h.deposed(); err != nil {
			t.Errorf("after 11 s another may take the lease: %v", err)
		}
		if err := h.standsStill(); err == nil || !strings.Contains(err.Error(), ": restoration.requested of g2-1") {
			t.Errorf("after 11 s it is not ready for else, and says why: %v", err)
		}
		if err := h.stuck(); err != nil {
			t.Errorf("after 11 s it is to be restarted: %v", err)
		}
		after(stuckAfter*standstill + time.Second)
		if err := h.deposed(); err == nil {
			t.Error("after 61 s nobody else may take the lease")
		}
		close(done)
		synctest.Wait()
		if err := h.deposed(); err == nil { // the loop is at it for as long
			t.Error("a loop that stands still keeps the lease")
		}
		h.busy.Store(nil)
		if err := h.deposed(); err != nil {
			t.Errorf("it has answered, and another may take the lease: %v", err)
		}
	})
}

func TestAMachineThatHangsEndsTheServiceAfterABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began, done := newHealth(nil), time.Now(), make(chan struct{})
		defer close(done)
		go h.think("restoration.requested of g2-1", func() { <-done })
		err := h.hung(t.Context())
		took := time.Since(began)
		if err == nil || !strings.Contains(err.Error(), "restoration.requested of g2-1") {
			t.Errorf("ended with %v", err)
		}
		if took <= mostComputing || took > mostComputing+mostComputing/looks {
			t.Errorf("ended after %v, expected %v and a look", took, mostComputing)
		}
	})
}

func TestAMachineThatAnswersNowAndThenDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*mostComputing)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				h.think("a tick", func() { time.Sleep(mostComputing / 2) })
			}
		}()
		if err := h.hung(ctx); err != nil {
			t.Error(err)
		}
		<-ended
	})
}
