// Command reknit-nats is the stock NATS server with a health check that an image without a shell can run. It looks after the disk under
// its store, and ends with the reason where it has to be started anew, for its supervisor to do so.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/shared/embedded"
)

// healthURL is the monitoring address of deploy/nats/nats.conf.
const healthURL = "http://127.0.0.1:8222/healthz"

func main() {
	run := serve
	if len(os.Args) == 2 && os.Args[1] == "healthcheck" {
		run = healthcheck
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reknit-nats:", err)
		os.Exit(1)
	}
}

// serve runs the server that the arguments configure, as nats-server does, until a signal ends it.
func serve() error {
	flags := flag.NewFlagSet("reknit-nats", flag.ContinueOnError)
	options, err := server.ConfigureOptions(flags, os.Args[1:], server.PrintServerAndExit, flags.Usage,
		server.PrintTLSHelpAndDie)
	if err != nil || options == nil {
		return err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	ended, anew := watch(s)
	s.WaitForShutdown()
	close(ended)
	return <-anew
}

// lookEvery is how often the disk is looked at.
const lookEvery = time.Second

// watch logs what becomes of the disk under the server's store until ended is closed, and shuts the server down where it has to be started
// anew: the error says so. A server without a store has nothing to look after.
func watch(s *server.Server) (ended chan struct{}, anew chan error) {
	ended, anew = make(chan struct{}), make(chan error, 1)
	store := s.StoreDir()
	if store == "" {
		anew <- nil
		return ended, anew
	}
	go func() {
		disk, err := embedded.NewDisk(filepath.Dir(store))
		if err != nil {
			s.Errorf("the disk is not looked after: %v", err)
			anew <- nil
			return
		}
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		for {
			select {
			case <-ended:
				anew <- nil
				return
			case <-every.C:
			}
			news, needed := disk.Look()
			if news != "" {
				s.Errorf("%s", news)
			}
			if needed {
				anew <- errors.New(news + ": to be started anew")
				s.Shutdown()
				return
			}
		}
	}()
	return ended, anew
}

// healthcheck asks the running server whether it takes connections and JetStream works.
func healthcheck() error {
	client := http.Client{Timeout: 4 * time.Second}
	response, err := client.Get(healthURL)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: expected 200, got %s", healthURL, response.Status)
	}
	return nil
}
