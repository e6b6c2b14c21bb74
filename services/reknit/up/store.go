package up

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/embedded"
)

// store is the NATS server and the disk under it. A server that has to be started anew listens on the same port, and who was
// connected comes back.
type store struct {
	config embedded.Config // with the port on which it listens
	server *embedded.Server
	disk   *embedded.Disk
	out    io.Writer
}

const lookEvery = time.Second

// open takes a server that runs.
func open(config embedded.Config, server *embedded.Server, out io.Writer) (*store, error) {
	address, err := url.Parse(server.URL())
	if err == nil {
		config.Port, err = strconv.Atoi(address.Port())
	}
	if err != nil {
		return nil, err
	}
	disk, err := embedded.NewDisk(config.StoreDir)
	return &store{config: config, server: server, disk: disk, out: out}, err
}

// once prints what others say, such as that a store is torn: the same words once in a minute.
func once(out io.Writer, begins string) func(string) {
	var mutex sync.Mutex
	said := map[string]time.Time{}
	return func(warning string) {
		mutex.Lock()
		defer mutex.Unlock()
		if now := time.Now(); now.Sub(said[warning]) >= time.Minute {
			maps.DeleteFunc(said, func(_ string, at time.Time) bool { return now.Sub(at) >= time.Minute })
			said[warning] = now
			fmt.Fprintf(out, "%s%s\n", begins, tell.Line(warning))
		}
	}
}

// warns prints what NATS warns of, but for words about the clients of others: all of ours begin with TLS where keys are asked for.
func warns(out io.Writer) func(string) {
	say := once(out, "NATS warns: ")
	return func(warning string) {
		if !strings.Contains(warning, "TLS Handshake First") {
			say(warning)
		}
	}
}

func (s *store) close() {
	if s.server != nil {
		s.server.Shutdown()
	}
}

// watch looks until ctx ends, or the server cannot be started anew.
func (s *store) watch(ctx context.Context) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if err := s.look(); err != nil {
			return err
		}
	}
}

// look tells what is new about the disk, and starts the server anew where it has to be.
func (s *store) look() error {
	news, anew := s.disk.Look()
	if news != "" {
		fmt.Fprintln(s.out, news)
	}
	if !anew {
		return nil
	}
	s.server.Shutdown()
	var err error
	if s.server, err = embedded.Start(s.config); err != nil {
		return fmt.Errorf("NATS is not started anew: %w", err)
	}
	fmt.Fprintln(s.out, "NATS was started anew")
	s.disk, err = embedded.NewDisk(s.config.StoreDir)
	return err
}
