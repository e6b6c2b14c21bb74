package events

import "fmt"

// refusals are the questions on which a negotiation waits for a service, and how that one says that it has no answer.
var refusals = map[Kind]Kind{
	PlanRequested:    PlanRefused,
	RestorationAsked: RestorationRefused,
	Scheduled:        RestorationFailed,
}

// NoAnswer says, of a question that the speaker was to answer, why its answer cannot be had or may not travel: whoever
// waits for it would wait without an end. It says nothing of any other event.
func (s Speaker) NoAnswer(question Event, reason error) []Event {
	refusal := refusals[question.Kind]
	if row, _ := refusal.Row(); !row.Authorised(s.Source) {
		return nil
	}
	said := &Failure{Negotiation: question.Subject, Reason: fmt.Sprintf("no answer can be given: %v", reason)}
	return []Event{s.Say(question, refusal, question.Subject, said)}
}
