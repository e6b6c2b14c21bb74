// Package page serves a page that shows a cluster live: its nodes and links, the plan, training, and changes as they happen. A viewer that
// knows its token may ask on it for a node to leave; else the page only reads. The monitor never waits for it, and it never waits for a
// viewer.
package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/view"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

// Config says where the page is served, and to whom.
type Config struct {
	Address string // host:port; empty: there are figures only
	Token   string // that a viewer has to know, who may then ask for a node to leave; empty: anybody who reaches the address may look
}

const (
	mostWaiting = 1 << 12                // heartbeats that wait for the page; others are not shown
	lookEvery   = 200 * time.Millisecond // for events
	lookAgain   = time.Second            // for heartbeats, and for those that stay away
)

// Page is a page that is served.
type Page struct {
	config Config
	pulses chan events.Pulse
	asks   chan ask
	board  *board
	server *http.Server // nil: nothing is served
	told   *figures
	ended  sync.WaitGroup
	stop   context.CancelFunc
}

// ask is a question for who keeps the view.
type ask struct {
	generation uint64
	answer     chan<- answer // takes one without waiting
}

type answer struct {
	detail view.Detail
	found  bool
}

// Open keeps the view and the figures of a cluster until it is closed, and serves the page where Config has an address. It fails
// where the address is taken, or where a secured installation has no token for it.
func Open(ctx context.Context, b *bus.Bus, config Config) (*Page, error) {
	told, err := newFigures(b.Cluster())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Page{
		config: config, pulses: make(chan events.Pulse, mostWaiting), asks: make(chan ask), board: newBoard(), told: told, stop: stop,
	}
	if config.Address != "" {
		if err := p.serve(ctx, b); err != nil {
			p.Close()
			return nil, err
		}
	}
	p.ended.Go(func() { p.keep(ctx, b) })
	return p, nil
}

func (p *Page) serve(ctx context.Context, b *bus.Bus) error {
	if p.config.Token == "" && b.Secured() {
		return service.Misconfigured{Err: errors.New("REKNIT_PAGE_TOKEN: expected a token, as everything is secured here, got none")}
	}
	listener, err := net.Listen("tcp", p.config.Address)
	if err != nil {
		return fmt.Errorf("REKNIT_PAGE_ADDRESS: expected a free host:port: %w", err)
	}
	p.server = &http.Server{
		Handler: p.routes(b), ReadHeaderTimeout: requestTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	p.ended.Go(func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("the page is not served any more", "error", err)
		}
	})
	slog.Info("the page is served", "address", listener.Addr().String())
	return nil
}

// Close ends it, and returns when the address is free again.
func (p *Page) Close() {
	p.stop()
	if p.server != nil {
		p.server.Close()
	}
	p.ended.Wait()
	p.told.stop()
}

// Hear shows a heartbeat. It never waits: where the page is behind, this one is not shown.
func (p *Page) Hear(pulse events.Pulse) {
	select {
	case p.pulses <- pulse:
	default:
	}
}
