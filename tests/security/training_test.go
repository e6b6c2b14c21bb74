package security

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/services"
)

const steps = 100_000

// train runs a reference trainer until the test's process ends: training has no end, and who asks to leave goes when the
// others can do without it.
func (p *place) train(ctx context.Context, name, text string) error {
	settings := map[string]string{
		"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_NATS_KIT": p.kit(name), "REKNIT_TRAINER_NODE": p.key(name),
		"REKNIT_TRAINER_TEXT": text, "REKNIT_TRAINER_STEPS": strconv.Itoa(steps), "REKNIT_TRAINER_BLOCKS": "2",
		"REKNIT_TRAINER_GLOBAL_BATCH": "12", "REKNIT_TRAINER_WIDTH": "16", "REKNIT_TRAINER_HIDDEN": "16",
		"REKNIT_TRAINER_COMPARE_EVERY": "10", "REKNIT_TRAINER_PIPELINES": "1", "REKNIT_TRAINER_LEAST_STAGES": "2",
	}
	var config trainer.Config
	if err := env.ParseWithOptions(&config, env.Options{Environment: settings}); err != nil {
		return err
	}
	return trainer.Run(ctx, config)
}

// TestTheNodesOfTwoInstitutionsTrainWithNothingButTheirKits has all that a job needs pass: two nodes train half of a model
// each, and one of another institution takes the place, and the layers, of one that leaves.
func TestTheNodesOfTwoInstitutionsTrainWithNothingButTheirKits(t *testing.T) {
	p := open(t)
	services.RunWith(t, p.url, cluster, 2, filepath.Join(p.dir, "services"))
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("A bar of iron heated in the fire, and a wheel that turns. ", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.connect("negotiator").Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard := make(chan events.Event, 16)
	subjects := []string{
		events.EventSubject(cluster, events.PlanActivated, "*"), events.EventSubject(cluster, events.Committed, "*"),
	}
	if _, err := p.connect("user").Follow(ctx, events.EventStream, subjects, bus.All,
		func(event events.Event) { heard <- event }); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	begin := func(ctx context.Context, name string) { go func() { ended <- p.train(ctx, name, text) }() }
	leaver, leave := context.WithCancel(ctx)
	defer leave()
	begin(leaver, "n1")
	begin(ctx, "n2")
	for committed := 0; ; {
		select {
		case event := <-heard:
			switch {
			case event.Kind == events.PlanActivated && event.Subject == p.key("n3"):
				return
			case event.Kind != events.Committed:
				continue
			}
			if committed++; committed == 1 {
				begin(ctx, "n3")
			} else {
				leave()
			}
		case err := <-ended:
			if err != nil {
				t.Fatalf("a trainer ended: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("the third node never took part")
		}
	}
}
