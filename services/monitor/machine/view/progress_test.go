package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// The page showed the last loss that was finite, a flat curve and a green dot.
func TestALossThatIsNotFiniteIsTroubleSinceTheStepAtWhichItBecameSo(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(10, "n1", "n2", "n3", "n4")
	first := l.view.progress.step + 1
	for range 3 {
		l.now = l.now.Add(time.Second)
		l.view.Pulse(events.Pulse{Node: "n1", Incarnation: "i", Step: l.view.progress.step + 1, StepSeconds: 1, LossNotFinite: true}, l.now)
	}
	status := l.view.Figures(l.now).Status
	if want := fmt.Sprintf("the loss is not finite since step %d", first); status.Level != Trouble || status.Diverged != first || !strings.Contains(status.Says, want) {
		t.Errorf("it says %s, %q, expected %q", status.Level, status.Says, want)
	}
	l.beat(3, "n1", "n2", "n3", "n4")
	if status := l.view.Figures(l.now).Status; status.Diverged > 0 {
		t.Errorf("finite again, it says %s, %q", status.Level, status.Says)
	}
}

// A trainer that stands still outside of its micro-batches goes on beating.
func TestWhereNoStepIsMadeForLongerThanUsualThePageSaysSo(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(10, "n1", "n2", "n3", "n4")
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		l.say(events.PlanActivated, node, &events.Activation{Node: node, Generation: 1, Step: 100})
	}
	last := events.Pulse{Incarnation: "i", Step: l.view.progress.step, StepSeconds: 1, Loss: 2}
	stand := func(seconds int) Status {
		for range seconds {
			l.now = l.now.Add(time.Second)
			for _, node := range []string{"n1", "n2", "n3", "n4"} {
				last.Node = node
				l.view.Pulse(last, l.now)
			}
		}
		return l.view.Figures(l.now).Status
	}
	if status := stand(20); status.Level != Calm {
		t.Errorf("after 20 s it says %s, %q", status.Level, status.Says)
	}
	if status := stand(40); status.Level != Trouble || !strings.Contains(status.Says, "no step for 1m0s, 1s is usual") {
		t.Errorf("after a minute it says %s, %q", status.Level, status.Says)
	}
}

// A change that stood for minutes was shown as one that is under way.
func TestAChangeForWhichNoStepIsMadeForLongerThanUsualIsTrouble(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(10, four...)
	l.open(plan(2))
	l.now = l.now.Add(20 * time.Second)
	if status := l.status(); status.Level != Busy {
		t.Errorf("after 20 s it says %s, %q", status.Level, status.Says)
	}
	l.now = l.now.Add(40 * time.Second)
	status := l.status()
	if status.Level != Trouble || !strings.Contains(status.Says, "consenting, waiting for n1") ||
		!strings.Contains(status.Says, "no step for 1m0s") {
		t.Errorf("after a minute it says %s, %q", status.Level, status.Says)
	}
}

// The page showed the members of what was given up as lost, and their last step.
func TestAfterAResetThePageShowsNoMemberAndNoStepOfBefore(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(10, "n1", "n2", "n3", "n4")
	l.say(events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "the next job"})
	l.now = l.now.Add(time.Minute)
	parts := l.view.Parts(l.now)
	for _, key := range []string{"plan", "layers", "node/n1"} {
		if part, is := parts[key]; is {
			t.Errorf("there is %s: %+v", key, part)
		}
	}
	now, is := parts["now"].(Status)
	if !is || now.Step > 0 || now.Level != Idle || !strings.HasPrefix(now.Says, "training begins anew once nodes join") {
		t.Errorf("it says %+v", parts["now"])
	}
}
