// Command reknit-nats is the stock NATS server with a health check that an image without a shell can run.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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
	s.WaitForShutdown()
	return nil
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
