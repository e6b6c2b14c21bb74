package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reknit/reknit/shared/bus"
)

// health answers over HTTP how the service is. Without a bus it is not connected yet.
type health struct {
	bus      *bus.Bus
	consumer atomic.Pointer[bus.Consumer]
	caughtUp atomic.Bool
	busy     atomic.Pointer[time.Time]  // since when the loop is at one thing; nil: it waits
	thinks   atomic.Pointer[thought]    // what the machine is at; nil: it was not asked, or has answered
	stands   atomic.Pointer[string]     // why the service waits for somebody else; nil: it does not
	lag      atomic.Pointer[lag]        // as last looked at; nil: not known
	filled   atomic.Pointer[bus.Filled] // of what the log keeps things in, as last looked at; nil: not known
	halted   atomic.Pointer[string]     // why the machine decides nothing until a person does something; nil: it decides

	standstill time.Duration
}

func newHealth(b *bus.Bus) *health { return &health{bus: b, standstill: standstill} }

// thought is what the machine computes, and since when.
type thought struct {
	since time.Time
	about string // as the kind and subject of an event
}

func (t thought) String() string {
	return fmt.Sprintf("computing since %s: %s", t.since.Format(time.RFC3339), t.about)
}

// lag is what the log has for the service beyond what it is done with.
type lag struct {
	bus.Lag
	idle time.Time // since when there is something, and neither it nor anything else comes; zero: all comes
}

const (
	standby      = "standby: another instance holds the lease and works"
	checkTimeout = 2 * time.Second
	stuckAfter   = 6 // standstills: a planner with 1,000 nodes thinks for seconds, and a restart costs more than a minute's patience
	looks        = 4 // at the lag, within a standstill
	// looksAtStores is at how many looks at the lag it is looked once at how full the stores are, which takes a request each.
	looksAtStores = 24
)

// mostComputing is how long a machine may be at one thing before the service ends: it hangs. Its lease is another's from stuckAfter
// standstills on, where there is another. The next instance has the event once more, and after mostDeaths of them it is refused.
var mostComputing = 2 * time.Minute

// standstill is how long one message or one tick may take before the service counts as standing still.
var standstill = 10 * time.Second

func (h *health) standsFor(reason string) { h.stands.Store(&reason) }

// halts notes why the machine decides nothing; empty: it decides. No other copy could do better.
func (h *health) halts(reason string) {
	if reason == "" {
		h.halted.Store(nil)
		return
	}
	h.halted.Store(&reason)
}

// begin marks that the loop is at one thing.
func (h *health) begin() {
	now := time.Now()
	h.busy.Store(&now)
}

// think calls the machine, about what an event or a tick tells.
func (h *health) think(about string, call func()) {
	h.thinks.Store(&thought{time.Now(), about})
	defer h.thinks.Store(nil)
	call()
}

// hung returns an error once the machine is at one thing for longer than it may be, and nil once ctx ended.
func (h *health) hung(ctx context.Context) error {
	for {
		if thinks := h.thinks.Load(); thinks != nil && time.Since(thinks.since) > mostComputing {
			return fmt.Errorf("the machine hangs: %v, longer than %v", thinks, mostComputing)
		}
		if pause(ctx, mostComputing/looks) != nil {
			return nil
		}
	}
}

// watch looks at the lag until ctx ends. The lag is unknown if it cannot be asked for: the log is out of reach.
func (h *health) watch(ctx context.Context, consumer *bus.Consumer) {
	for looked := 0; ; looked++ {
		found, err := consumer.Lag(ctx)
		if err != nil {
			h.lag.Store(nil)
		} else {
			h.lag.Store(&lag{found, h.idleSince(found)})
		}
		if looked%looksAtStores == 0 {
			h.filled.Store(h.bus.Filled(ctx))
		}
		if pause(ctx, h.standstill/looks) != nil {
			return
		}
	}
}

// idleSince tells since when nothing comes though there is something. A loop that is at one thing takes nothing either.
func (h *health) idleSince(found bus.Lag) time.Time {
	before := h.lag.Load()
	switch {
	case found.Messages == 0 || h.busy.Load() != nil || !h.bus.Together(h.standstill):
		return time.Time{}
	case before == nil || before.idle.IsZero() || before.Taken != found.Taken:
		return time.Now()
	}
	return before.idle
}

// stuck says what only a restart mends. An outage of the log, a full store and another instance's lease are none of that.
func (h *health) stuck() error {
	if thinks := h.thinks.Load(); thinks != nil && time.Since(thinks.since) > stuckAfter*h.standstill {
		return fmt.Errorf("stuck: %v", thinks)
	}
	if lag := h.lag.Load(); lag != nil && !lag.idle.IsZero() && time.Since(lag.idle) > stuckAfter*h.standstill {
		return fmt.Errorf("stuck: %v, and nothing comes since %v", lag.Lag, lag.idle.Format(time.RFC3339))
	}
	return nil
}

// deposed says why another instance may take the lease, nil where none may. A machine that computes gets on, until it is stuck.
func (h *health) deposed() error {
	if h.thinks.Load() != nil && h.stands.Load() == nil {
		return h.stuck()
	}
	return h.standsStill()
}

// standsStill says what does not get on, nil where all does.
func (h *health) standsStill() error {
	if reason := h.stands.Load(); reason != nil {
		return errors.New(*reason)
	}
	if thinks := h.thinks.Load(); thinks != nil && time.Since(thinks.since) > h.standstill {
		return errors.New(thinks.String())
	}
	if busy := h.busy.Load(); busy != nil && time.Since(*busy) > h.standstill {
		return fmt.Errorf("loop: at one thing since %v%s", busy.Format(time.RFC3339), h.because())
	}
	if consumer := h.consumer.Load(); consumer != nil && consumer.Outstanding() > h.standstill {
		return fmt.Errorf("loop: a message came %v ago and is not handled", consumer.Outstanding().Round(time.Second))
	}
	return nil
}

// because says what the log refuses meanwhile. Nobody who is no part of NATS sees the disk under it.
func (h *health) because() string {
	if h.bus == nil || h.bus.Trouble() == "" {
		return ""
	}
	return ": " + h.bus.Trouble() +
		"; while NATS answers and stores nothing, the disk under its store is full, read-only or gone, as its own log says"
}

// serve answers on address until it is stopped: /healthz fails where a restart helps, /readyz while the service cannot
// do its work, /metrics is for Prometheus. Stop returns when the address is free again.
func (h *health) serve(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("REKNIT_HTTP_ADDRESS: expected a free host:port: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(func(*http.Request) error { return h.stuck() }))
	mux.HandleFunc("GET /readyz", answer(h.ready))
	mux.Handle("GET /metrics", promhttp.Handler())
	server := &http.Server{Handler: mux, ReadTimeout: checkTimeout, WriteTimeout: 2 * checkTimeout}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("health server", "error", err)
		}
	})
	slog.Info("health is served", "address", listener.Addr().String())
	return func() { server.Close(); serving.Wait() }, nil
}

func answer(check func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if err := check(request); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// ready names the first check that fails: nats, streams, what stands still, what a person must decide, or what is
// behind. Excluded, standby is no failure.
func (h *health) ready(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), checkTimeout)
	defer cancel()
	switch {
	case h.bus == nil:
		return errors.New("nats: no server has answered yet")
	case !h.bus.Conn().IsConnected():
		return fmt.Errorf("nats: expected a connection, got %v", h.bus.Conn().Status())
	}
	if err := h.bus.Provisioned(ctx); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	if err := h.standsStill(); err != nil {
		if err.Error() == standby && request.FormValue("exclude") == "standby" {
			return nil
		}
		return err
	}
	if halted := h.halted.Load(); halted != nil {
		return errors.New(*halted)
	}
	lag := h.lag.Load()
	switch {
	case lag != nil && (lag.Age > h.standstill || !h.caughtUp.Load()):
		return errors.New(lag.String())
	case !h.caughtUp.Load():
		return errors.New("behind: the log up to the start is not handled yet")
	}
	return nil
}

// Healthcheck asks a running service whether it is ready; of what is copy, whether it is or stands by; of live, whether no restart helps.
func Healthcheck(ctx context.Context, address, what string) error {
	page, known := map[string]string{"": "/readyz", "copy": "/readyz?exclude=standby", "live": "/healthz"}[what]
	if !known {
		return fmt.Errorf("healthcheck: expected copy, live or nothing, got %.80q", what)
	}
	if address == "" {
		return errors.New("REKNIT_HTTP_ADDRESS: expected host:port of the running service, got none")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+page, nil)
	if err != nil {
		return fmt.Errorf("REKNIT_HTTP_ADDRESS: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("%s: expected 200, got %s: %s", request.URL, response.Status, bytes.TrimSpace(why))
	}
	return nil
}
