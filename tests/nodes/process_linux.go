// Package nodes runs the nodes of a test as processes of their own. Its README tells how.
package nodes

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"

	"github.com/reknit/reknit/tests/links"
)

// Argument makes this program a node; the node's name follows.
const Argument = "node"

// Process is a node: this program once more, in a namespace of its own. Its methods are called over its standard input
// and output.
type Process struct {
	*links.Namespace
	*rpc.Client
	name    string
	command *exec.Cmd
}

// fatLinks are kernel parameters that any host on long fat links needs: a stream of 1 Gbit/s keeps 5 MB on its way at a
// round trip of 40 ms, and the usual limit of 4 MB halves it. And no run shall profit from what an earlier one learnt.
var fatLinks = map[string]string{
	"net.ipv4.tcp_wmem":            "4096 65536 33554432",
	"net.ipv4.tcp_rmem":            "4096 131072 33554432",
	"net.ipv4.tcp_no_metrics_save": "1",
}

// Start starts a node in a new namespace.
func Start(name string) (*Process, error) {
	namespace, err := links.NewNamespace()
	if err != nil {
		return nil, err
	}
	p := &Process{Namespace: namespace, name: name}
	for parameter, value := range fatLinks {
		if err == nil {
			err = p.Set(parameter, value)
		}
	}
	if err == nil {
		err = p.Restart()
	}
	if err != nil {
		namespace.Close()
		return nil, err
	}
	return p, nil
}

// Restart starts a node's process again, after Kill.
func (p *Process) Restart() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.command = exec.Command(program, Argument, p.name)
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	p.Client = rpc.NewClient(stream{output, input})
	return p.Namespace.Start(p.command)
}

// stream is what two pipes make.
type stream struct {
	io.Reader
	io.WriteCloser
}

// Kill ends the process with SIGKILL and returns when it is dead. Calls to the process that are under way fail.
func (p *Process) Kill() error {
	if err := p.command.Process.Kill(); err != nil {
		return err
	}
	var killed *exec.ExitError
	if err := p.command.Wait(); !errors.As(err, &killed) {
		return err
	}
	return nil
}

// End closes what the process reads, upon which it ends, and lets go of its namespace.
func (p *Process) End() error {
	_ = p.Client.Close() // it may be closed already
	var err error
	if p.command.ProcessState == nil { // not killed
		err = p.command.Wait()
	}
	p.Namespace.Close()
	return err
}

// Serve has the methods of a node called by who started this process, until that one ends or closes it: cancel is
// called then.
func Serve(node any, cancel context.CancelFunc) error {
	server := rpc.NewServer()
	if err := server.RegisterName("Node", node); err != nil {
		return err
	}
	server.ServeConn(stream{ending{os.Stdin, cancel}, os.Stdout})
	return nil
}

// ending is a reader behind whose end nothing goes on.
type ending struct {
	io.Reader
	cancel context.CancelFunc
}

func (e ending) Read(into []byte) (int, error) {
	length, err := e.Reader.Read(into)
	if err != nil {
		e.cancel()
	}
	return length, err
}
