package torch

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/shared/embedded"
)

// Cluster is the id of the cluster of a job under Reknit.
const Cluster = "torch"

// plane is NATS in this process, and the four services as processes of their own.
type plane struct {
	config   embedded.Config
	server   *embedded.Server
	services *processes.Supervisor
}

// NewReknit starts a script under Reknit: NATS, the services, and an agent for each worker. Training ends after so many
// steps.
func NewReknit(place Place, script, directory string, workers []string, steps int) (*Job, error) {
	config := embedded.Config{StoreDir: filepath.Join(directory, "nats")}
	server, err := embedded.Start(config)
	if err != nil {
		return nil, err
	}
	plane := &plane{config: config, server: server}
	plane.services = processes.New(place.Reknit, directory, func(name string, err error) {
		fmt.Printf("%s ended by itself, %v: see %s\n", name, err, directory)
	})
	settings := map[string]string{
		"REKNIT_NATS_URL": server.URL(), "REKNIT_CLUSTER": Cluster, "REKNIT_LOG_LEVEL": "INFO",
		"REKNIT_START_NODES": fmt.Sprint(len(workers)),
	}
	job := newJob(directory, func(worker string) *exec.Cmd {
		command := agent(place, worker, script, directory, steps)
		command.Env = append(command.Env,
			"REKNIT_NATS_URL="+server.URL(), "REKNIT_CLUSTER="+Cluster, "REKNIT_AGENT_NODE="+worker)
		command.Env = append(command.Env, "TMPDIR="+directory) // which takes along what killed agents leave
		return command
	})
	job.plane = plane
	for _, service := range processes.Services {
		if err == nil {
			err = plane.services.Start(service, service, settings, true)
		}
	}
	for _, worker := range workers {
		if err == nil {
			err = job.Start(worker)
		}
	}
	if err != nil {
		job.Close()
	}
	return job, err
}

// agent is the command of an agent and its training script.
func agent(place Place, worker, script, directory string, steps int) *exec.Cmd {
	arguments := []string{"agent", "run"}
	switch filepath.Base(script) {
	case DDP:
		arguments = append(arguments, "--unchanged", "--restarts", "100")
	case Soak:
		arguments = append(arguments, "--restarts", "100")
	}
	arguments = append(arguments, "--", Python, place.script(script), "--text", place.Text,
		"--steps", fmt.Sprint(steps))
	if script == DDP {
		arguments = append(arguments, "--snapshot", filepath.Join(directory, "snapshot.pt"))
	}
	command := exec.Command(place.Reknit, arguments...)
	command.Dir, command.Env = directory, append(os.Environ(), place.environment(worker)...) // where the model is saved
	return command
}

// URL returns where NATS serves a job under Reknit.
func (j *Job) URL() string { return j.plane.server.URL() }

// KillService ends one of the services with SIGKILL; it is started again.
func (j *Job) KillService(name string) error { return j.plane.services.Kill(name) }

// RestartNATS ends NATS, and starts it again where it was after so long: with what it kept, or with nothing.
func (j *Job) RestartNATS(away time.Duration, wiped bool) error {
	address, err := url.Parse(j.URL())
	if err != nil {
		return err
	}
	if j.plane.config.Port, err = strconv.Atoi(address.Port()); err != nil {
		return err
	}
	j.plane.server.Shutdown()
	if wiped {
		err = os.RemoveAll(j.plane.config.StoreDir)
	}
	time.Sleep(away)
	if err == nil {
		j.plane.server, err = embedded.Start(j.plane.config)
	}
	return err
}

func (p *plane) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.services.Close(ctx)
	p.server.Shutdown()
}
