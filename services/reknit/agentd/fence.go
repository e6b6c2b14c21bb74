package agentd

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/reknit/reknit/services/agent/fence"
)

// unheardFor is how long a script runs on whose node the hub does not hear. Tests wait less.
var unheardFor = fence.UnheardFor

// listen tells when the hub does not hear the node any more. It waits for no answer: a client that connects again holds a question up
// for many seconds (16 s behind a proxy that passed nothing).
func (s *standIn) listen(ctx context.Context) {
	heard := make(chan struct{}, 1)
	go s.ask(ctx, func() { put(heard) })
	h := fence.Hearing{Last: time.Now()}
	ticks := time.NewTicker(fence.HearEvery)
	defer ticks.Stop()
	for {
		hears := false
		select {
		case <-ctx.Done():
			return
		case <-heard:
			hears = true
		case <-ticks.C:
		}
		if h.CutOff(time.Now(), hears, unheardFor) && ctx.Err() == nil {
			put(s.cut)
		}
	}
}

// ask asks again and again whether the hub hears the node.
func (s *standIn) ask(ctx context.Context, heard func()) {
	for ctx.Err() == nil {
		if s.hears(ctx) {
			heard()
		}
		select {
		case <-ctx.Done():
		case <-time.After(fence.HearEvery):
		}
	}
}

// hears reports whether the hub hears the node, or hears nobody: where all of its servers refuse a connection none of them runs, so
// that nobody goes on without this node.
func (s *standIn) hears(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, fence.HearEvery)
	defer cancel()
	return s.session.Heard(ctx) == nil || refused(ctx, s.config.URL)
}

// refused reports whether all servers of a list of URLs refuse a connection.
func refused(ctx context.Context, urls string) bool {
	for one := range strings.SplitSeq(urls, ",") {
		server, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return false
		}
		host := server.Host
		if server.Port() == "" {
			host = net.JoinHostPort(server.Hostname(), "4222")
		}
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", host)
		if err == nil {
			connection.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
	}
	return true
}
