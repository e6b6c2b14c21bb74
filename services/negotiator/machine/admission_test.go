package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func guarded(t *testing.T, quorum int) *world {
	w := newEmptyWorld(t, 3, 0)
	w.machine.settings.Admission = protocol.Admission{
		Nodes: map[string]string{"n1": "alpha", "n2": "beta", "n3": "beta", "n4": "beta"}, Quorum: quorum,
	}
	w.begin(3)
	return w
}

func TestWhoIsOnNoListIsRefusedAtOnceAndWhoIsJoins(t *testing.T) {
	w := guarded(t, 0)
	before := len(w.plans())
	w.join("n9")
	w.run()
	if got := w.refusals("n9"); len(got) != 1 || len(w.plans()) != before || w.opened != nil {
		t.Fatalf("n9 is refused %v, with %d plans; opened %v", got, len(w.plans()), w.opened)
	}
	w.join("n4")
	w.run()
	if !strings.Contains(w.nodes(), "n4") {
		t.Fatalf("n4 is listed: nodes %q", w.nodes())
	}
}

func TestWhoIsOnNoListJoinsWithTheApprovalOfAsManyInstitutionsAsItTakes(t *testing.T) {
	w := guarded(t, 2)
	w.join("n9")
	w.run()
	if !strings.Contains(w.nodes(), "n9") {
		t.Fatalf("alpha and beta approve: nodes %q, refused %v", w.nodes(), w.refusals("n9"))
	}
}

func TestWhoJoinsIsOfTheInstitutionThatThePolicySays(t *testing.T) {
	for node, institution := range map[string]string{"n4": "beta", "n9": ""} {
		w := guarded(t, 2)
		w.mute[events.NegotiationOpened] = true
		w.join(node)
		w.run()
		if w.opened == nil || len(w.opened.Changes) != 1 || w.opened.Changes[0].Institution != institution {
			t.Errorf("%s joins: opened %+v, expected institution %q", node, w.opened, institution)
		}
	}
}

func TestManyMembersOfOneInstitutionAreOneApproval(t *testing.T) {
	w := guarded(t, 2)
	w.lose("n1")
	w.run()
	w.join("n9")
	w.join("n4")
	w.run()
	got := w.refusals("n9")
	if len(got) != 1 || !strings.Contains(got[0].Reason, "of 2 that must approve there are 1: beta") {
		t.Fatalf("refused %v", got)
	}
	if strings.Contains(w.nodes(), "n9") || !strings.Contains(w.nodes(), "n4") {
		t.Fatalf("n4, which asked with it, is listed: nodes %q", w.nodes())
	}
}

func TestWhoWasApprovedOfComesBackToWhatItHeldAlone(t *testing.T) {
	w := guarded(t, 2)
	w.join("n9")
	w.run()
	for _, node := range []string{"n2", "n3", "n9"} {
		w.lose(node)
	}
	w.join("n9")
	w.run()
	if got := w.refusals("n9"); slices.ContainsFunc(got, func(refusal events.Refusal) bool { return refusal.Refused == events.ChangeJoin }) {
		t.Fatalf("refused %v", got)
	}
}

// Nothing at the node said what to do, and a negotiator had to be started again.
func TestWhoIsOnNoListHearsHowItGetsThereAndJoinsOnceItIs(t *testing.T) {
	w := guarded(t, 0)
	admission := w.machine.settings.Admission
	admission.Lists = "reknit provision admission --dir secret lists all that have a kit"
	w.machine.Admit(admission)
	w.join("n9")
	w.run()
	if got := w.refusals("n9"); len(got) != 1 || !strings.HasSuffix(got[0].Reason, "admission policy. "+admission.Lists) {
		t.Fatalf("refused %v", got)
	}
	w.machine.Admit(protocol.Admission{Nodes: map[string]string{"n1": "alpha", "n9": "beta"}})
	w.join("n9")
	w.run()
	if !strings.Contains(w.nodes(), "n2") || !strings.Contains(w.nodes(), "n9") {
		t.Errorf("n9 is listed now, and n2, which is not any more, is a member: nodes %q", w.nodes())
	}
}
