package security

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/services/trainer/text"
	"github.com/reknit/reknit/shared/bus"
)

// steps are more than any test waits for: a test ends at what it waits for, and not with the training, which no slow machine overtakes.
const steps = 1 << 20

// prose is what is trained on.
var prose = strings.Repeat("A bar of iron heated in the fire, and a wheel that turns. ", 50)

// train starts a reference trainer. It ends with the training or, once ctx has ended, when the others can do without it; and with the test,
// or it would train on with its peers for as long as the tests behind that run.
func (p *place) train(ctx context.Context, name, text string, more map[string]string, ended chan<- error) {
	p.Helper()
	config, err := p.trainer(name, text, more)
	if err != nil {
		p.Fatal(err)
	}
	ctx, ask := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- trainer.Run(ctx, config)
	}()
	p.Cleanup(func() { ask(); askAgain(gone) })
}

// asks is held by who sends signals to this process, for each waits until its own is heard.
var asks sync.Mutex

// askAgain has all trainers that were asked to leave end at once, as a second signal does, until one is gone.
func askAgain(gone <-chan struct{}) {
	asks.Lock()
	defer asks.Unlock()
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM)
	defer signal.Stop(heard)
	for {
		select {
		case <-gone:
			return
		case <-time.After(20 * time.Millisecond): // it may not listen yet
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			<-heard
		}
	}
}

func (p *place) trainer(name, text string, more map[string]string) (config trainer.Config, err error) {
	settings := map[string]string{
		"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_NATS_KIT": p.kit(name), "REKNIT_TRAINER_NODE": p.key(name),
		"REKNIT_TRAINER_TEXT": text, "REKNIT_TRAINER_STEPS": strconv.Itoa(steps), "REKNIT_TRAINER_BLOCKS": "2",
		"REKNIT_TRAINER_GLOBAL_BATCH": "12", "REKNIT_TRAINER_WIDTH": "16", "REKNIT_TRAINER_HIDDEN": "16",
		"REKNIT_TRAINER_COMPARE_EVERY": "10", "REKNIT_TRAINER_PIPELINES": "1", "REKNIT_TRAINER_LEAST_STAGES": "2",
	}
	if name == "n3" && p.site != "" {
		settings["REKNIT_NATS_URL"] = p.site
	}
	maps.Copy(settings, more)
	return config, env.ParseWithOptions(&config, env.Options{Environment: settings})
}

// course is a training that the test follows, and steers: when the first plan is committed a third node joins, and when
// that one is in, the first leaves.
type course struct {
	*place
	begin     func(name string)
	leave     func()
	committed int
	took      bool                      // the third node took a place
	left      bool                      // the first node is gone
	digests   map[uint64]map[int]string // of units, by the step that they are of
}

func (c *course) hear(event events.Event) {
	switch event.Kind {
	case events.PlanActivated:
		c.took = c.took || event.Subject == c.key("n3")
	case events.TrainingDigested:
		c.compare(event)
	case events.Committed:
		if c.committed++; c.committed == 1 {
			c.begin("n3")
		} else {
			c.leave()
		}
	}
}

// compare keeps what is told of the model once the third node trains in the place of the first.
func (c *course) compare(event events.Event) {
	var told events.Digests
	if err := json.Unmarshal(event.Data, &told); err != nil {
		c.Fatal(err)
	}
	if !c.took || !c.left {
		return
	}
	if c.digests[told.Step] == nil {
		c.digests[told.Step] = map[int]string{}
	}
	for _, unit := range told.Units {
		c.digests[told.Step][unit.Unit] = unit.Digest
	}
}

// digest returns the first step of which all units were told, and the model's digest then; 0 while there is none.
func (c *course) digest(units int) (step uint64, digest string) {
	for step, digests := range c.digests {
		if len(digests) < units {
			continue
		}
		all := make([]string, units)
		for unit, digest := range digests {
			all[unit] = digest
		}
		return step, model.ModelDigest(all)
	}
	return 0, ""
}

// TestTheNodesOfTwoInstitutionsTrainWithNothingButTheirKits has all that a job needs pass: two nodes train half of a model
// each, and one of another institution takes the place, and the layers, of one that leaves. All of it goes over TLS, and
// the model comes out as a single process trains it.
func TestTheNodesOfTwoInstitutionsTrainWithNothingButTheirKits(t *testing.T) { trainTogether(open(t)) }

func trainTogether(p *place) {
	t := p.T
	t.Helper()
	p.services()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(prose), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := p.connect("negotiator").Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard := make(chan events.Event, 1024)
	var subjects []string
	for _, kind := range []events.Kind{events.PlanActivated, events.Committed, events.TrainingDigested} {
		subjects = append(subjects, events.EventSubject(cluster, kind, "*"))
	}
	if _, err := p.connect("user").Follow(ctx, events.EventStream, subjects, bus.All,
		func(event events.Event) { heard <- event }); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	leaver, leave := context.WithCancel(ctx)
	defer leave()
	contexts := map[string]context.Context{"n1": leaver, "n2": ctx, "n3": ctx}
	begin := func(name string) { p.train(contexts[name], name, file, nil, ended) }
	begin("n1")
	begin("n2")
	training, samples := p.undisturbed(file)
	c := &course{place: p, begin: begin, leave: leave, digests: map[uint64]map[int]string{}}
	step, digest := uint64(0), ""
	for step == 0 {
		select {
		case event := <-heard:
			c.hear(event)
			step, digest = c.digest(training.Shape.Layers())
		case err := <-ended:
			if c.left || err != nil {
				t.Fatalf("a trainer ended: %v", err)
			}
			c.left = true
		case <-ctx.Done():
			t.Fatalf("no model was told; the third node took part: %v; the first left: %v", c.took, c.left)
		}
	}
	training.Steps = int(step)
	want, _, err := oracle.Run(training, samples, nil)
	if err != nil || digest != want {
		t.Errorf("the model's digest after step %d is %s, the oracle's %s: %v", step, digest, want, err)
	}
	if names, err := connect.Names(ctx, p.connect("user")); err != nil || names.Shown(p.key("n3")) != "n3" {
		t.Errorf("a user is not told the name that a node was provisioned under: %v, %+v", err, names)
	}
}

// undisturbed returns what a single process would train, and on which samples.
func (p *place) undisturbed(file string) (oracle.Training, *text.Text) {
	p.Helper()
	config, err := p.trainer("n1", file, nil)
	if err != nil {
		p.Fatal(err)
	}
	training, samples, err := config.Training()
	if err != nil {
		p.Fatal(err)
	}
	return training, samples
}
