package doctor

import (
	"cmp"
	"context"

	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/inventory"
)

// training tells what keeps training from going on, or spoils it, and what to do, as status does.
func (d *doctor) training(ctx context.Context) (all []Finding) {
	if err := connect.MayListen(d.bus); err != nil {
		return d.held(ctx, err)
	}
	overview, err := inventory.Look(ctx, d.bus)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	for _, trouble := range overview.Troubles() {
		all = append(all, found(wrong, cmp.Or(trouble.Do, "reknit explain says what it waits for"), "%s", trouble.Says)...)
	}
	rest, err := connect.Resting(ctx, d.bus)
	switch {
	case len(all) > 0:
	case err == nil && rest.String() != "":
		return found(fine, "", "%v", rest)
	case overview.Generation == 0:
		return found(fine, "", "nobody trains yet: reknit agent run -- COMMAND starts a trainer")
	default:
		return found(fine, "", "nothing holds it up")
	}
	return all
}

// held tells whether no plan is possible, where heartbeats may not be heard.
func (d *doctor) held(ctx context.Context, deaf error) []Finding {
	last, err := history.Last(ctx, d.bus, 1)
	if err == nil && len(last) > 0 && last[len(last)-1].Held != nil {
		return found(wrong, "ask with the kit of a user: reknit status says what to do", "the cluster holds: %s",
			last[len(last)-1].Held.Reason)
	}
	return found(unseen, "see whether this user may hear heartbeats", "%v", cmp.Or(err, deaf))
}
