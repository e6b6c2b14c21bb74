// Package monitor watches the nodes and links of a cluster: it hears heartbeats, sends probes, and says who is
// suspected, cleared or lost and how good each link is.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/internal/page"
	"github.com/reknit/reknit/services/monitor/internal/room"
	"github.com/reknit/reknit/services/monitor/machine"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

// Config is the monitor's environment.
type Config struct {
	service.Common
	Pause           time.Duration `env:"REKNIT_DETECTOR_PAUSE" envDefault:"2500ms" unit:"duration" is:"over=0" reason:"a garbage collection or a retransmission on a slow link may take it; with it a silent node is lost after 4.4 s"`
	GreatestTimeout time.Duration `env:"REKNIT_DETECTOR_GREATEST" envDefault:"10s" unit:"duration" is:"over=0" reason:"training stands still for it when a whole host vanishes"`
	SiteFor         time.Duration `env:"REKNIT_DETECTOR_SITE" envDefault:"60s" unit:"duration" is:"over=0" reason:"most cuts of a site's way to the others are over by then; for so long nobody of a silent site is given up"`
	StalledFor      time.Duration `env:"REKNIT_DETECTOR_STALLED" envDefault:"30s" unit:"duration" is:"over=0" reason:"the most that a process is waited for whose host lives; how long follows from the stalls that ended by themselves"`
	CorrelatedFor   time.Duration `env:"REKNIT_DETECTOR_CORRELATED" envDefault:"15s" unit:"duration" is:"over=0" reason:"a hub of three servers came back within 8.3 s of kill -9; silence of most nodes for longer is believed"`
	HoursPerFailure float64       `env:"REKNIT_NODE_HOURS_PER_FAILURE" envDefault:"24" unit:"hours" is:"over=0" reason:"expected time to a node's failure before any was seen; spot instances live about a day"`
	LinkEvery       time.Duration `env:"REKNIT_LINK_PROBE_EVERY" envDefault:"1s" unit:"duration, 0 for never" reason:"one direction for each 64 nodes: 256 KiB a second of all of them"`
	PageAddress     string        `env:"REKNIT_PAGE_ADDRESS" unit:"host:port" reason:"of the page that shows the cluster live; off by default, as it tells whoever reaches it what there is"`
	PageToken       string        `env:"REKNIT_PAGE_TOKEN" unit:"characters" is:"min=16" reason:"that the page's link must hold; needed where everything is secured"`
}

// Validate says what the tags cannot.
func (c Config) Validate() error {
	if least := machine.Defaults(c.Cluster).Detector.FloorSeconds; c.GreatestTimeout.Seconds() < least {
		return fmt.Errorf("REKNIT_DETECTOR_GREATEST: expected at least %v s, the least timeout, got %v", least, c.GreatestTimeout)
	}
	return nil
}

func (c Config) settings() machine.Settings {
	settings := machine.Defaults(c.Cluster)
	detector := &settings.Detector
	detector.PauseSeconds, detector.CapSeconds = c.Pause.Seconds(), c.GreatestTimeout.Seconds()
	detector.SiteSeconds, detector.StalledSeconds = c.SiteFor.Seconds(), c.StalledFor.Seconds()
	detector.CorrelatedSeconds, detector.TickSeconds = c.CorrelatedFor.Seconds(), tickEvery.Seconds()
	settings.PriorSeconds, settings.LinkSeconds = c.HoursPerFailure*3600, c.LinkEvery.Seconds()
	return settings
}

const (
	tickEvery   = 100 * time.Millisecond
	followPause = time.Second
	// mostWaiting is how many heartbeats wait for the loop: those of 10,000 nodes in six seconds. Then newer ones take the
	// place of older ones.
	mostWaiting = 1 << 16
	// mostAnswers is how many answers to probes wait for it.
	mostAnswers = 4096
)

// Run watches until ctx ends.
func Run(ctx context.Context, config Config) error {
	b, err := config.Connect(ctx, "monitor")
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // whoever still probes
	var shown *page.Page
	if config.PageAddress != "" || config.HTTPAddress != "" { // or nobody sees it
		shown, err = page.Open(ctx, b, page.Config{Address: config.PageAddress, Token: config.PageToken})
		if err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
		defer shown.Close()
	}
	inputs := make(chan func(time.Time) []events.Event, mostAnswers)
	w := &watcher{
		Machine: machine.New(config.settings()), ctx: ctx, bus: b, inputs: inputs, pulses: make(chan arrival, mostWaiting),
		page: shown,
	}
	pulses, err := b.Conn().Subscribe(events.PulseSubject(config.Cluster, "*"), w.pulse)
	if err != nil {
		return fmt.Errorf("monitor: heartbeats: %w", err)
	}
	defer func() { _ = pulses.Unsubscribe() }()
	go w.followPlans()
	go room.Keep(ctx, b)
	return service.Run(ctx, service.Options{
		Name: "monitor", Bus: b, Machine: w, TickEvery: tickEvery, Address: config.HTTPAddress, Inputs: inputs,
	})
}

// watcher is the machine with its probes sent.
type watcher struct {
	*machine.Machine
	ctx    context.Context
	bus    *bus.Bus
	inputs chan func(time.Time) []events.Event
	pulses chan arrival
	page   *page.Page  // nil: none is served
	called atomic.Bool // the loop to take what waits in pulses
}

// arrival is a heartbeat and when it came. It may have to wait while the loop is at the log; how late it is taken says
// nothing about its node.
type arrival struct {
	pulse events.Pulse
	at    time.Time
}

// Handle, Tick and the doors below send the probes that the machine wants.
func (w *watcher) Handle(event events.Event) ([]events.Event, error) {
	defer w.send()
	return w.Machine.Handle(event)
}

func (w *watcher) Tick(now time.Time) []events.Event {
	said := w.hear(now) // or who was heard meanwhile would pass for silent
	defer w.send()
	return append(said, w.Machine.Tick(now)...)
}

// followPlans tells the machine the plan in force, and each that comes after it. There may be no stream yet.
func (w *watcher) followPlans() {
	for err := w.follow(); err != nil && w.ctx.Err() == nil; err = w.follow() {
		slog.DebugContext(w.ctx, "the links of the plan are not known yet", "error", err)
		select {
		case <-time.After(followPause):
		case <-w.ctx.Done():
		}
	}
}

func (w *watcher) follow() error {
	plans := events.PlanSubject(w.bus.Cluster(), "*")
	last, found, err := w.bus.LastEvent(w.ctx, events.PlanStream, plans)
	if err != nil {
		return err
	}
	position := bus.All
	if found {
		position = bus.AfterSequence(last.Sequence - 1)
	}
	_, err = w.bus.Follow(w.ctx, events.PlanStream, []string{plans}, position, w.uses)
	return err
}

// uses hands a plan to the loop. One that cannot be read is the negotiator's to mend.
func (w *watcher) uses(event events.Event) {
	plan, err := events.Open[events.Plan](event)
	if err != nil {
		return
	}
	select {
	case w.inputs <- func(time.Time) []events.Event { w.Machine.Uses(&plan); return nil }:
	case <-w.ctx.Done():
	}
}

// hear takes the heartbeats that wait as it begins.
func (w *watcher) hear(now time.Time) (said []events.Event) {
	defer w.send()
	w.called.Store(false)
	for range len(w.pulses) { // who comes meanwhile calls again
		select {
		case heard := <-w.pulses:
			said = append(said, w.Machine.Pulse(heard.pulse, time.Since(heard.at), now)...)
		default: // it was replaced by a newer one, that is not there yet
			return said
		}
	}
	return said
}

// pulse keeps a heartbeat for the loop and calls it.
func (w *watcher) pulse(message *nats.Msg) {
	at := time.Now()
	var pulse events.Pulse
	err := events.Decode(message.Data, &pulse)
	if err == nil && !strings.HasSuffix(message.Subject, "."+pulse.Node) {
		err = fmt.Errorf("node: expected that of the subject, got %q", pulse.Node)
	}
	if err != nil {
		slog.Warn("heartbeat refused", "subject", message.Subject, "error", err)
		return
	}
	w.keep(arrival{pulse, at})
	if w.page != nil {
		w.page.Hear(pulse)
	}
	if w.called.CompareAndSwap(false, true) {
		select {
		case w.inputs <- w.hear:
		default: // the next Tick hears it
		}
	}
}

// keep puts a heartbeat behind those that wait, in place of the oldest where there are too many.
func (w *watcher) keep(heard arrival) {
	for {
		select {
		case w.pulses <- heard:
			return
		default:
		}
		select {
		case <-w.pulses:
		default:
		}
	}
}

func (w *watcher) send() {
	for _, ask := range w.Asks() {
		go func() {
			answer, gone := w.probe(ask)
			select {
			case w.inputs <- func(now time.Time) []events.Event {
				defer w.send()
				return w.Machine.Probed(ask, answer, gone, now)
			}:
			case <-w.ctx.Done():
			}
		}()
	}
}
