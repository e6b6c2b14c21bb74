// Package outlive says which step a script's state is whole at when the script ends or does not come back: its agent may
// give that state to others and to the next script.
package outlive

// Phase is what a script does with its state, as it says before it does it.
type Phase uint64

// The phases, as the control page has them.
const (
	Between  Phase = iota // between steps: nobody changes the state
	InStep                // in a step: gradients are made, the state stands still
	Applying              // from before the first change of an update on, until the script reports on the step
	Changing              // what was changed behind the update, in buffers and values, is copied to where the state is
)

// Script is what is known of a script at that moment.
type Script struct {
	Phase     Phase
	Completed uint64 // steps, which the script counts up once an update is whole
	Stepping  bool   // it was told to train a step, and has not reported on it
	Index     uint64 // completed steps before that one
	Ordered   bool   // it was told to make a step of sums that it has, and has not reported on that
}

// Whole returns the step at which the state stands, in completed ones; false where an update may have begun that has not ended. An update
// is whole once it is counted: whoever evaluates, saves or hangs behind it leaves a whole state. Nobody can tell of an ordered update, for
// which a script says no phase. A copy that is made behind an update is torn until it is whole. A script that is alive must be kept from
// updating before it is looked at: word abort of the control page does that.
func (s Script) Whole() (step uint64, whole bool) {
	switch {
	case s.Ordered, s.Phase >= Changing:
		return 0, false
	case !s.Stepping, s.Completed == s.Index:
		return s.Completed, s.Phase < Applying
	}
	return s.Completed, s.Completed == s.Index+1
}

// Needed reports whether others may need what a script left that trained under a plan: no newer one is committed, or the newest has
// the script's node hold something, or the cluster is held since. A plan that does without it was made of what all of its holders had
// verified, and they may all have died under it.
func Needed(trained, newest uint64, holds, isHeld bool) bool {
	return newest <= trained || holds || isHeld
}
