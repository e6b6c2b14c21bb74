package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func TestAPlannerThatIsAwayIsWaitedForAndNobodyIsGivenUp(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.join("n4")
	w.run()
	w.tick(4 * time.Minute)
	if phase := w.phase(); phase != protocol.Planning {
		t.Fatalf("phase %q", phase)
	}
	w.tick(time.Hour)
	w.mute[events.PlanRequested] = false
	w.propose(w.requests()[len(w.requests())-1])
	w.run()
	if w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("nodes %q, though the last question was answered", w.nodes())
	}
}

func TestAQuestionThatAServiceNeverAnswersIsAskedAnewAndLessAndLessOften(t *testing.T) {
	for service, question := range map[string]events.Kind{"planner": events.PlanRequested, "restorer": events.RestorationAsked} {
		for name, change := range map[string]func(*world){
			"a join": func(w *world) { w.join("n4") }, "a failure": func(w *world) { w.lose("n3") },
		} {
			w := newWorld(t, 3)
			before := w.count(question)
			w.mute[question] = true
			change(w)
			w.run()
			for _, told := range []struct {
				minutes, asked int // asked so often by then
			}{{4, 1}, {6, 2}, {14, 2}, {16, 3}, {34, 3}, {36, 4}} {
				w.tick(time.Unix(1_800_000_000, 0).Add(time.Duration(told.minutes) * time.Minute).Sub(w.now))
				if asked := w.count(question) - before; asked != told.asked {
					t.Fatalf("%s, %s: asked %d times in %d minutes, expected %d", name, service, asked, told.minutes, told.asked)
				}
			}
			if aborted := w.last(events.Aborted); !strings.Contains(string(aborted.Data), "the "+service+" did not answer in time") {
				t.Errorf("%s: aborted as %s", name, aborted.Data)
			}
		}
	}
}

func TestATransferOfWhichTheRestorerLostSightIsMadeAnew(t *testing.T) {
	w := whileAllArePaused(t)
	w.blind = true
	under := w.opened.Negotiation
	w.tick(3 * time.Minute)
	if w.opened == nil || w.opened.Negotiation == under {
		t.Fatal("all stand still, and nobody says who holds it up")
	}
	w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
	w.run()
	if w.nodes() != "n1 n2 n3" {
		t.Fatalf("nodes %q", w.nodes())
	}
}
