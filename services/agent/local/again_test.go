package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/reknit/reknit/events"
)

// live holds the lock that tells agents of a living trainer, until the test ends or die is called.
func (c *client) live() (die func()) {
	c.Helper()
	page, err := os.Open(filepath.Join(c.dir, controlName))
	if err == nil {
		err = syscall.Flock(int(page.Fd()), syscall.LOCK_SH)
	}
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { page.Close() })
	return func() { page.Close() }
}

// restart ends the agent and starts another one; the rest is the trainer's.
func (r *rig) restart() {
	r.Helper()
	r.server.Close()
	r.serve()
}

const joinAgain = `{"units":[4096,4096],"batch":8,"microBatch":1,"digest":"test","node":"n1","dir":%q}`

// trainAStep trains the first step of a cluster of one.
func (r *rig) trainAStep() *client {
	r.Helper()
	c, step := r.train()
	return c.trainFirst(step)
}

// trainFirst trains the first step, and leaves its mark in a unit.
func (c *client) trainFirst(step Order) *client {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, unitName(1)), aStep, 0o600); err != nil {
		c.Fatal(err)
	}
	c.setWord(wordCompleted, 1)
	c.setWord(wordReady, 1)
	c.next(orderStep, Report{Order: step.ID, Done: 1})
	return c
}

func TestATrainerThatOutlivesItsAgentJoinsTheNextOneWithAllThatItHolds(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.live()
	before.setWord(wordAbort, 99)
	r.restart()
	c := r.join(fmt.Sprintf(joinAgain, before.dir))
	if c.dir != before.dir || c.word(wordAbort) != 0 {
		t.Errorf("it joined in %s, and gives up the steps up to %d: expected %s and none", c.dir, c.word(wordAbort), before.dir)
	}
	if c.past == nil || c.past.Generation != 1 || c.past.Plan == "" {
		t.Errorf("it tells that it trained %+v: expected plan 1", c.past)
	}
	answer := make(chan Order)
	go func() { answer <- c.next(orderAdopt, Report{Done: 1}) }()
	r.abandon(c.member)
	consent := await[events.Consent](r, events.Consented)
	digest := events.Digest(aStep)
	if consent.Trained != 1 || len(consent.Claims) != 2 || consent.Claims[1] != (events.Claim{Unit: 1, Step: 1, Digest: digest}) {
		t.Errorf("it claims %+v, trained under plan %d: expected both units at step 1 of plan 1", consent.Claims, consent.Trained)
	}
	r.commit(1, c.member)
	adopt := <-answer
	if len(adopt.Took) != 0 {
		t.Errorf("it took %v: expected nothing", adopt.Took)
	}
	if next := c.next(orderStep, Report{Order: adopt.ID, Done: 1}); next.Index != 1 {
		t.Errorf("it goes on with step %d", next.Index)
	}
}

func TestWhoWasReadyWhenItsAgentEndedCanStillMakeTheStep(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.live()
	r.restart()
	c := r.join(fmt.Sprintf(joinAgain, before.dir))
	answer := make(chan Order)
	go func() { answer <- c.next(orderApply, Report{Done: 1, Ready: true}) }()
	r.abandon(c.member)
	apply := <-answer
	if apply.Step != 2 {
		t.Errorf("it is to apply %d", apply.Step)
	}
	c.start(t.Context(), "POST", "/v1/next", fmt.Sprintf(`{"order":%d,"done":2}`, apply.ID))
	if consent := await[events.Consent](r, events.Consented); len(consent.Claims) != 2 || consent.Claims[0].Step != 2 {
		t.Errorf("it claims %+v: expected both units at step 2", consent.Claims)
	}
}

func TestUnitsThatWereBeingReplacedWhenTheAgentEndedAreNotClaimed(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.live()
	r.server.trainer(before.session).state.files.unnote() // as before it takes a unit in
	r.restart()
	c := r.join(fmt.Sprintf(joinAgain, before.dir))
	c.start(t.Context(), "POST", "/v1/next", `{"order":0,"done":1}`)
	r.abandon(c.member)
	if consent := await[events.Consent](r, events.Consented); len(consent.Claims) != 0 {
		t.Errorf("it claims %+v", consent.Claims)
	}
}

func TestTheFilesOfATrainerStayForAsLongAsItLives(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	die := before.live()
	r.restart()
	first := r.join(`{"units":[4096],"batch":8,"digest":"another","node":"n2","microBatch":1}`)
	if _, err := os.Stat(before.dir); err != nil {
		t.Errorf("the files of a trainer that lives: %v", err)
	}
	first.stream.Close()
	await[events.Exit](r, events.NodeExited)
	die()
	r.join(`{"units":[4096],"batch":8,"digest":"another","node":"n3","microBatch":1}`)
	if _, err := os.Stat(before.dir); err == nil {
		t.Error("the files of a trainer that has ended are left")
	}
}

func TestAFolderThatCannotBeTakenOverIsRefusedInWords(t *testing.T) {
	r := newRig(t)
	c := r.trainAStep()
	c.live()
	other := r.dial()
	refused := func(name string, status int, dir string, units string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"units": json.RawMessage(units), "batch": 8, "microBatch": 1, "node": "n2", "dir": dir})
		if err != nil {
			t.Fatal(err)
		}
		if got, answer := r.call(other, "POST", "/v1/join", body); got != status {
			t.Errorf("%s: expected %d, got %d %s", name, status, got, answer)
		}
	}
	refused("elsewhere", http.StatusBadRequest, "/etc", "[4096,4096]")
	refused("its agent lives", http.StatusConflict, c.dir, "[4096,4096]")
	refused("not there", http.StatusNotFound, c.dir+"x", "[4096,4096]")
	r.restart()
	refused("other units", http.StatusBadRequest, c.dir, "[4096,8192]")
	r.join(fmt.Sprintf(joinAgain, c.dir)) // which all of this left as it was
}

func TestNobodyWaitsForACopyThatAnAgentBeganWhichHasEnded(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.live()
	before.setWord(wordStill, 1) // its agent copied a snapshot when it was killed
	r.restart()
	if c := r.join(fmt.Sprintf(joinAgain, before.dir)); c.word(wordStill) != 0 {
		t.Error("the trainer waits for the end of a copy that nobody makes")
	}
}

// A write where a file has no memory ends the process if the disk is full, the trainer and the agent alike.
func TestAUnitOfWhichSomePagesHaveNoMemoryGetsItBeforeAnythingIsWrittenThere(t *testing.T) {
	parent := t.TempDir()
	sizes := []int64{unitOfPages, unitOfPages}
	before, err := makeFiles(parent, sizes, true)
	if err != nil {
		t.Fatal(err)
	}
	before.leave()
	holed := filepath.Join(before.dir.path, unitName(0))
	if err := errors.Join(os.Truncate(holed, 2*int64(os.Getpagesize())), os.Truncate(holed, unitOfPages)); err != nil {
		t.Fatal(err)
	}
	files, _, err := takeFiles(parent, before.dir.path, sizes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.remove)
	if files.room[0] || !files.room[1] {
		t.Errorf("of a unit that lost pages and of a whole one it says %v", files.room)
	}
}
