package history

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// Explain said of a stop that is done that its generation is not there yet, and of a reset nothing.
func TestAJobThatWasStoppedOrGivenUpIsSaidToBeAndNothingToBeUnderWay(t *testing.T) {
	stop := func(log *teller) {
		log.say(events.NegotiationOpened, "/negotiator", "g3", &events.Opening{Negotiation: "g3", Generation: 3, Stop: true,
			Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n1"}}})
		log.say(events.TrainingStopped, "/negotiator", "c",
			&events.JobStop{Generation: 2, Step: 40, Tier: "disk", Plan: events.Digest(nil)})
		log.say(events.Aborted, "/negotiator", "g3", &events.Abort{Negotiation: "g3", Generation: 3, Reason: "training has stopped"})
	}
	reset := func(log *teller) {
		log.say(events.NegotiationOpened, "/negotiator", "g3", &events.Opening{Negotiation: "g3", Generation: 3, Abandon: true,
			Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n1"}}})
		log.say(events.Aborted, "/negotiator", "g3", &events.Abort{Negotiation: "g3", Generation: 3, Reason: "nobody has layer 1"})
		log.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "its state is gone"})
		log.say(events.TrainingReset, "/negotiator", "c", &events.JobReset{Generation: 2, Reason: "the next job"})
	}
	for says, happens := range map[string]func(*teller){
		"Training has stopped at step 40, snapshot complete at 40 (disk)":       stop,
		"Training begins anew once nodes join, as somebody asked: the next job": reset,
	} {
		log := newTeller()
		log.failure(2)
		happens(log)
		url := log.serve(t)
		why, past := printed(t, ExplainCommand(), url), printed(t, Command(), url)
		if !strings.HasPrefix(why, says) || !strings.Contains(why, "The last plan was that of generation 2.") ||
			strings.Contains(why, "is not there yet") || strings.Contains(why, "holds") {
			t.Errorf("explain says\n%s", why)
		}
		if !strings.Contains(past, says) {
			t.Errorf("history says\n%s", past)
		}
	}
}
