package local

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

func TestATrainerTrainsStepAfterStepUntilTheLast(t *testing.T) {
	r := newRig(t)
	c := r.join(strings.Replace(usualJoin, "{", `{"totalSteps":2,`, 1))
	r.commit(0, c.member)
	adopt := c.next(orderAdopt, Report{})
	first := c.next(orderStep, Report{Order: adopt.ID})
	if first.Index != 0 || first.Rank != 0 || first.World != 1 || !first.Switched || first.Plan == nil ||
		first.Samples[0] != [2]int{0, 8} {
		t.Errorf("first step: %+v", first.Training)
	}
	second := c.next(orderStep, Report{Order: first.ID, Done: 1, Seconds: 0.1, Loss: 2})
	if second.Index != 1 || second.Consumed != 8 || second.Switched || second.Plan != nil {
		t.Errorf("second step: %+v", second.Training)
	}
	finished := make(chan Order, 1)
	go func() { finished <- c.next(orderFinished, Report{Order: second.ID, Done: 2}) }()
	last := await[events.Digests](r, events.TrainingDigested)
	if !last.Final || last.Step != 2 || len(last.Units) != 2 {
		t.Errorf("it tells of its last step %+v", last)
	}
	select {
	case <-finished:
		t.Error("it is finished before the others have told so: they may need what it holds")
	case <-time.After(100 * time.Millisecond):
	}
	r.complete(2)
	<-finished
	var standing Standing
	c.expect(http.StatusOK, &standing, "GET", "/v1/state", "")
	if standing.Node != "n1" || standing.Generation != 1 || standing.Replicas != 1 || standing.Safe {
		t.Errorf("it stands at %+v", standing)
	}
}

func TestATrainersSpeedIsToldAsTheMicroBatchesThatItTrainsASecond(t *testing.T) {
	r := newRig(t)
	c := r.join(strings.Replace(usualJoin, "{", `{"job":{"kind":"data-parallel"},`, 1))
	r.commit(0, c.member)
	order := c.next(orderStep, Report{Order: c.next(orderAdopt, Report{}).ID})
	for done := range uint64(22) {
		report := Report{Order: order.ID, Done: done + 1, MicroBatches: 8, ComputeSeconds: 2}
		order = c.next(orderStep, report)
	}
	if profile := await[events.Profile](r, events.NodeProfiled); profile.SpeedFactor != 4 {
		t.Errorf("its speed is %v: expected 8 micro-batches in 2 s", profile.SpeedFactor)
	}
}

func TestWhatIsNotAsExpectedIsRefusedByName(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	large := strings.Repeat("x", mostBodyBytes+1)
	for _, test := range []struct {
		status             int
		method, path, body string
		says               string
	}{
		{400, "POST", "/v1/join", `{`, "body"},
		{400, "POST", "/v1/join", `{"unit":[1]}`, "unit"},
		{400, "POST", "/v1/join", `{"units":[0],"batch":1,"microBatch":1}`, "units[0]"},
		{400, "POST", "/v1/join", `{"units":[],"batch":1,"microBatch":1}`, "units"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":0,"microBatch":1}`, "globalBatch"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":3,"microBatch":2}`, "microBatch"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"state":"gone"}`, "state"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"node":"a b"}`, "node"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"job":{"layers":[{},{}]}}`, "units"},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"job":7}`, `field "job": expected an object, got a JSON number`},
		{400, "POST", "/v1/join", `{"units":[8],"batch":"8","microBatch":1}`, `field "batch": expected a whole number, got a JSON string`},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"job":{"stages":{"min":"2"}}}`,
			`field "stages.min": expected a whole number, got a JSON string`},
		{400, "POST", "/v1/join", `[]`, `field "body": expected an object, got a JSON array`},
		{400, "POST", "/v1/join", `{"units":[8],"batch":1,"microBatch":1,"job":{"replica":"alike"}}`, "replica"},
		{413, "POST", "/v1/join", `{"digest":"` + large + `"}`, "bytes"},
		{409, "POST", "/v1/join", usualJoin, "joined here already"},
		{400, "POST", "/v1/next", `{"order":"one"}`, "body"},
		{400, "POST", "/v1/next", ``, "body"},
		{413, "POST", "/v1/next", `{"broken":"` + large + `"}`, "bytes"},
		{400, "POST", "/v1/leave", `{"deadlineSeconds":-1}`, "deadlineSeconds"},
		{400, "POST", "/v1/fail", `{}`, "reason"},
		{404, "POST", "/v1/nothing", `{}`, "no call"},
		{404, "PUT", "/v1/next", `{}`, "no call"},
		{409, "GET", "/v1/session", ``, "open already"},
		{400, "PUT", "/v1/store/one/key", `v`, "store"},
		{400, "PUT", "/v1/store/1/" + strings.Repeat("k", 257), `v`, "store"},
		{413, "PUT", "/v1/store/1/key", large, "bytes"},
		{413, "PUT", "/v1/store/1/key", large[:agent.MostRendezvousBytes+1], "bytes"},
		{400, "GET", "/v1/store/1/key?wait=long", ``, "wait"},
		{400, "GET", "/v1/store/1/key?wait=NaN", ``, "wait"},
		{400, "GET", "/v1/store/1/key?wait=1e300", ``, "wait"},
		{400, "POST", "/v1/store/1/key?add=one", ``, "add"},
	} {
		var failed failure
		c.expect(test.status, &failed, test.method, test.path, test.body)
		if !strings.Contains(failed.What+failed.Fix, test.says) || failed.Fix == "" {
			t.Errorf("%s %s %.80s: expected words of %q and what to do, got %+v",
				test.method, test.path, test.body, test.says, failed)
		}
	}
	stranger := &client{rig: r, http: r.dial(), session: "nobody"}
	stranger.expect(http.StatusNotFound, nil, "POST", "/v1/next", `{}`)
	stranger.expect(http.StatusNotFound, nil, "GET", "/v1/session", ``)
	stranger.expect(http.StatusGone, nil, "GET", "/v1/store/1/key", ``) // not found would say that nobody has set it
}

func TestAReportOutOfOrderIsToldWhichOneIsExpected(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	for body, says := range map[string]string{
		`{"order":9,"done":0}`:                         "order 2",
		`{"order":2,"done":7}`:                         "done 1 where the step was completed, else 0",
		`{"order":2,"done":1,"ready":true}`:            "only where the step was given up",
		`{"order":2,"done":1,"broken":"a collective"}`: "only where the step was given up",
	} {
		var failed failure
		c.expect(http.StatusConflict, &failed, "POST", "/v1/next", body)
		if !strings.Contains(failed.Fix, says) {
			t.Errorf("%s: expected to be told of %q, got %+v", body, says, failed)
		}
	}
	c.next(orderStep, Report{Order: step.ID, Done: 1}) // and nothing is lost by it
}

func TestAnOrderWhoseCallBrokeOffIsGivenAgain(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	again := c.next(orderStep, Report{Order: step.ID - 1})
	if again.ID != step.ID || again.Index != step.Index {
		t.Errorf("expected %+v again, got %+v", step, again)
	}
}

func TestOneOfManyCallsAtATimeIsLetIn(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin) // there is no plan: whoever is let in waits
	statuses := make(chan int)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			status, _ := r.call(c.http, "POST", c.path("/v1/next"), []byte(`{}`))
			statuses <- status
		})
	}
	for range 7 {
		if status := <-statuses; status != http.StatusConflict {
			t.Errorf("expected a conflict, got %d", status)
		}
	}
	r.commit(0, c.member)
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("expected the order, got %d", status)
	}
	calls.Wait()
}

func TestTheStateOutlivesTheAgent(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	trainer, err := (&files{dir: &folder{path: c.dir}}).mapped(unitName(0), 4096) // as the trainer maps it
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(trainer)
	copy(trainer, "what was trained")
	r.server.Close()
	if c.lines.Scan() {
		t.Errorf("expected the session to end, got %s", c.lines.Text())
	}
	if _, err := os.Stat(c.dir); err == nil {
		t.Errorf("%s is left", c.dir)
	}
	if string(trainer[:16]) != "what was trained" {
		t.Errorf("the trainer's state is %q", trainer[:16])
	}
}

func TestFilesOfAgentsThatAreGoneAreSweptAndThoseOfTheLivingKept(t *testing.T) {
	parent := t.TempDir()
	killed, err := makeFolder(parent, folderPrefix)
	if err != nil {
		t.Fatal(err)
	}
	living, err := makeFolder(parent, folderPrefix) // of a process that has another number, or none, where it is looked at
	if err != nil {
		t.Fatal(err)
	}
	defer living.remove()
	killed.lock.Close() // as the kernel does
	next, err := makeFolder(parent, folderPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer next.remove()
	if _, err := os.Stat(killed.path); err == nil {
		t.Error("the files of one that was killed are left")
	}
	for _, folder := range []*folder{living, next} {
		if _, err := os.Stat(folder.path); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAgentThatStartsRemovesWhatAKilledOneLeftUnlessItsTrainerLives(t *testing.T) {
	state := t.TempDir()
	left, both := map[bool]string{}, []bool{false, true}
	var locks []*os.File
	for _, lives := range both {
		killed, err := makeFiles(state, []int64{4096}, true)
		if err != nil {
			t.Fatal(err)
		}
		left[lives] = killed.dir.path
		if lives {
			control, err := os.Open(filepath.Join(killed.dir.path, controlName))
			if err != nil {
				t.Fatal(err)
			}
			defer control.Close()
			if err := syscall.Flock(int(control.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				t.Fatal(err)
			}
		}
		locks = append(locks, killed.dir.lock)
	}
	for _, lock := range locks {
		lock.Close() // as the kernel does
	}
	server, err := Serve(t.Context(), Config{Cluster: "c", StateDir: state}, filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, lives := range both {
		if _, err := os.Stat(left[lives]); (err == nil) != lives {
			t.Errorf("of a trainer that lives (%v): %v", lives, err)
		}
	}
}

// The lock is what the contract asks for, and not every client takes it.
func TestFilesOfAProcessThatLivesAreKeptThoughItHoldsNoLock(t *testing.T) {
	self, began := processStat(os.Getpid())
	if self == 0 {
		t.Skip("nothing tells of processes here")
	}
	for owner, kept := range map[string]bool{
		fmt.Sprint(os.Getpid(), " ", began): true,
		fmt.Sprint(os.Getpid(), " 1"):       false, // another process had that number
		"":                                  false,
	} {
		state := t.TempDir()
		killed, err := makeFiles(state, []int64{4096}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(killed.dir.path, ownerName), []byte(owner), 0o600); err != nil {
			t.Fatal(err)
		}
		killed.dir.lock.Close() // as the kernel does
		sweep(state, folderPrefix, 0)
		if _, err := os.Stat(killed.dir.path); (err == nil) != kept {
			t.Errorf("files of %q are kept: %v, expected %v", owner, err == nil, kept)
		}
		sweep(state, folderPrefix, os.Getpid())
		if _, err := os.Stat(killed.dir.path); err == nil {
			t.Errorf("files of %q are kept, which joins anew", owner)
		}
	}
}

func TestATrainersFilesSayWhoseTheyAre(t *testing.T) {
	r := newRig(t)
	c := r.join(`{"units":[16],"batch":1,"microBatch":1}`)
	if pid, lives := (&folder{path: c.dir}).owner(); pid != os.Getpid() || !lives {
		t.Errorf("they are of %d, which lives: %v", pid, lives)
	}
}

func TestAStateForWhichThereIsNoRoomIsRefused(t *testing.T) {
	r := newRig(t)
	c := &client{rig: r, http: r.dial()}
	var failed failure
	c.expect(http.StatusServiceUnavailable, &failed, "POST", "/v1/join",
		`{"units":[8000000000000,8000000000000],"batch":1,"microBatch":1}`)
	said := failed.What + failed.Fix
	if !strings.Contains(said, "state of 16000000000000 bytes") || !strings.Contains(said, "REKNIT_AGENT_STATE_DIR") {
		t.Errorf("it is told %+v", failed)
	}
	if left, _ := os.ReadDir(r.state); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestASocketThatIsServedIsNotTaken(t *testing.T) {
	r := newRig(t)
	_, err := Serve(t.Context(), Config{}, r.socket)
	if err == nil || !strings.Contains(err.Error(), "REKNIT_AGENT_SOCKET") {
		t.Errorf("expected an error that names the variable, got %v", err)
	}
	r.server.Close()
	another, err := Serve(t.Context(), Config{}, r.socket)
	if err != nil {
		t.Fatalf("expected the place of an agent that ended: %v", err)
	}
	another.Close()
}

func TestAFileThatIsNoSocketIsNotReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(t.Context(), Config{}, file); err == nil || !strings.Contains(err.Error(), "expected a socket") {
		t.Errorf("expected an error that says so, got %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "dear" {
		t.Errorf("the file is %q", data)
	}
}

func TestWhatATrainerHoldsIsSafeWhereAnotherHoldsIt(t *testing.T) {
	plan := &events.Plan{
		Nodes: []events.Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}},
		Pipelines: []events.Pipeline{
			{Stages: []events.Stage{{Node: "n1", Layers: events.Range{First: 0, End: 2}}}},
			{Stages: []events.Stage{
				{Node: "n2", Layers: events.Range{First: 0, End: 1}}, {Node: "n3", Layers: events.Range{First: 1, End: 2}},
			}},
		},
	}
	for node, expected := range map[string]int{"n1": 2, "n2": 2, "n3": 2, "n4": 0} {
		if got := replicas(plan, node); got != expected {
			t.Errorf("what %s holds: expected %d replicas, got %d", node, expected, got)
		}
	}
	plan.Pipelines = plan.Pipelines[:1]
	if got := replicas(plan, "n1"); got != 1 {
		t.Errorf("alone: expected 1, got %d", got)
	}
}
