package doctor

import (
	"context"

	"github.com/reknit/reknit/services/reknit/history"
)

// training tells why no plan is possible, where that is so.
func (d *doctor) training(ctx context.Context) []Finding {
	last, err := history.Last(ctx, d.bus, 1)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	if newest := len(last) - 1; newest >= 0 && last[newest].Held != nil {
		return found(wrong, "start who is missing again, by the name it had, or others in its place: reknit explain says who is waited for",
			"the cluster holds: %s", last[newest].Held.Reason)
	}
	return found(fine, "", "nothing holds it up")
}
