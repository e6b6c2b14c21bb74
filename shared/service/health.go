package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reknit/reknit/shared/bus"
)

// health answers over HTTP how the service is.
type health struct {
	bus      *bus.Bus
	consumer atomic.Pointer[bus.Consumer]
	caughtUp atomic.Bool
	busy     atomic.Pointer[time.Time] // since when the loop is at one thing; nil: it waits
	stands   atomic.Pointer[string]    // why the service waits for somebody else; nil: it does not
}

const checkTimeout = 2 * time.Second

// standstill is how long one message or one tick may take before the service counts as standing still.
var standstill = 10 * time.Second

func (h *health) standsFor(reason string) { h.stands.Store(&reason) }

// begin marks that the loop is at one thing.
func (h *health) begin() {
	now := time.Now()
	h.busy.Store(&now)
}

// standsStill says what does not get on, nil where all does.
func (h *health) standsStill() error {
	if reason := h.stands.Load(); reason != nil {
		return errors.New(*reason)
	}
	if busy := h.busy.Load(); busy != nil && time.Since(*busy) > standstill {
		return fmt.Errorf("loop: at one thing since %v", busy.Format(time.RFC3339))
	}
	if consumer := h.consumer.Load(); consumer != nil && consumer.Outstanding() > standstill {
		return fmt.Errorf("loop: a message came %v ago and is not handled", consumer.Outstanding().Round(time.Second))
	}
	return nil
}

// serve answers on address until ctx ends: /healthz while the process lives, /readyz while the service can do its
// work, /metrics for Prometheus.
func (h *health) serve(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("REKNIT_HTTP_ADDRESS: expected a free host:port: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.answerReady)
	mux.Handle("GET /metrics", promhttp.Handler())
	server := &http.Server{Handler: mux, ReadTimeout: checkTimeout, WriteTimeout: 2 * checkTimeout}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("health server", "error", err)
		}
	}()
	slog.InfoContext(ctx, "health is served", "address", listener.Addr().String())
	return nil
}

func (h *health) answerReady(w http.ResponseWriter, request *http.Request) {
	if err := h.ready(request.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// ready names the first check that fails: nats, streams, what stands still, or backlog.
func (h *health) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if !h.bus.Conn().IsConnected() {
		return fmt.Errorf("nats: expected a connection, got %v", h.bus.Conn().Status())
	}
	if err := h.bus.Provisioned(ctx); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	if err := h.standsStill(); err != nil {
		return err
	}
	if !h.caughtUp.Load() {
		return errors.New("backlog: the log up to the start is not handled yet")
	}
	return nil
}

// Healthcheck asks a running service whether it is ready.
func Healthcheck(ctx context.Context, address string) error {
	if address == "" {
		return errors.New("REKNIT_HTTP_ADDRESS: expected host:port of the running service, got none")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("REKNIT_HTTP_ADDRESS: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: expected 200, got %s", request.URL, response.Status)
	}
	return nil
}
