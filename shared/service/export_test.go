package service

import (
	"context"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

// SetStandstill has a service count as standing still that early, for one test.
func SetStandstill(t *testing.T, d time.Duration) { set(t, &standstill, d) }

// SetMostComputing has a service end that early where its machine does not return, for one test.
func SetMostComputing(t *testing.T, d time.Duration) { set(t, &mostComputing, d) }

// SetRegroup has a machine's clock go on that soon after an outage, for one test.
func SetRegroup(t *testing.T, d time.Duration) { set(t, &regroup, d) }

// SetRememberAfter has a service write its memory that soon after a message, for one test.
func SetRememberAfter(t *testing.T, d time.Duration) { set(t, &rememberAfter, d) }

// SetEndsWithin has a service that is told to end take that long at most, for one test: zero is a kill.
func SetEndsWithin(t *testing.T, d time.Duration) { set(t, &endsWithin, d) }

func set(t *testing.T, setting *time.Duration, d time.Duration) {
	before := *setting
	*setting = d
	t.Cleanup(func() { *setting = before })
}

// SetOpening has something happen before a message is opened, and something once its bytes are there, for one test.
func SetOpening(t *testing.T, before, arrived func(sequence uint64)) {
	open := openSealed
	openSealed = func(sealed bus.Sealed, ctx context.Context, arrives func()) (bus.Delivery, error) {
		before(sealed.Sequence())
		return open(sealed, ctx, func() {
			if arrives != nil {
				arrives()
			}
			arrived(sealed.Sequence())
		})
	}
	t.Cleanup(func() { openSealed = open })
}
