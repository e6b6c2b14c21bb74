package history

import "github.com/reknit/reknit/events"

// BeforeARetry says what is to be done before a held step is tried again: processes that run have the script as it was. Nothing is kept
// of the first step, for nothing was made.
func BeforeARetry(held events.HeldStep) string {
	if held.Step == 0 {
		return "mend the script, and end each process that runs the old one (kill PID, by the pid that its agent's log tells): its agent " +
			"starts the new one. Start it only where its agent has ended. Then run reknit step retry: nothing is lost, for no step was made"
	}
	return "a script that you mended must be started again before reknit step retry, for its processes run the old one: end " +
		"each (kill PID, by the pid that its agent's log tells), and its agent starts the new one. If the agent starts it no more, leave " +
		"the agent running, for it keeps the state, and start another: reknit agent run -- COMMAND"
}
