package agentd

import "testing"

// The byte was at the step that the plan before went on from, so that those who had a place in that waited for ever after a reset.
func TestWhatStandsInForAScriptCanAlsoBeginAtTheFirstStep(t *testing.T) {
	for _, done := range []uint64{0, 7, farAhead} {
		s := &standIn{done: done}
		steps := s.Holdings()[0].Steps
		if steps[0] != done || steps[len(steps)-1] != 0 {
			t.Errorf("at step %d it holds the byte at %v", done, steps)
		}
	}
}
