package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/reknit/reknit/shared/embedded"
)

// store is the NATS server and the disk under it. A server that once could not write a stream does not write it again,
// though there may be room by then: it is started anew, on the same port, and who was connected comes back.
type store struct {
	config embedded.Config // with the port on which it listens
	server *embedded.Server
	out    io.Writer
	away   error // why nothing can be written; nil: it can
}

const (
	lookEvery = time.Second
	// probeBytes is what a look writes: more than a server writes at a time, so that a disk counts as full before one is.
	probeBytes = 1 << 20
)

// open takes a server that runs.
func open(config embedded.Config, server *embedded.Server, out io.Writer) (*store, error) {
	address, err := url.Parse(server.URL())
	if err == nil {
		config.Port, err = strconv.Atoi(address.Port())
	}
	return &store{config: config, server: server, out: out}, err
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

// look tells that nothing can be written, once for each reason, and starts the server anew where it can be again.
func (s *store) look() error {
	err := probe(s.config.StoreDir)
	before := s.away
	s.away = err
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		fmt.Fprintf(s.out, "NATS cannot write to its store: %v; training goes on as it is, and nothing else does: make room, or mend the disk\n", err)
	case err == nil && before != nil:
		fmt.Fprintln(s.out, "NATS can write to its store again, and is started anew")
		s.server.Shutdown()
		if s.server, err = embedded.Start(s.config); err != nil {
			return fmt.Errorf("NATS is not started anew: %w", err)
		}
	}
	return nil
}

// probe writes a file into a folder, down to the disk, and removes it. The error names the folder.
func probe(folder string) (err error) {
	file, err := os.Create(filepath.Join(folder, "probe"))
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, probeBytes))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}
