package agentd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/local"
)

// hostNode is another one for each agent of each host.
func hostNode() string { return hostWord() + "-" + strconv.Itoa(os.Getpid()) }

// steadyNode is another one for each agent of a host, and the same for one that is started again: the host's name and
// the least number that no other agent has there. release gives it back.
func steadyNode(cluster string) (node string, release func()) {
	for number := 1; number <= local.MostTrainers; number++ {
		node := fmt.Sprintf("%s-%d", hostWord(), number)
		path := filepath.Join(os.TempDir(), "reknit-node-"+cluster+"-"+node)
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			continue // another user has it
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return node, func() { lock.Close() }
		}
		lock.Close()
	}
	return hostNode(), func() {}
}

// hostWord is the host's name, as far as an id may have it.
func hostWord() string {
	host, _ := os.Hostname() // without a name a number must do
	word := strings.Map(func(r rune) rune {
		if events.Token(string(r)) {
			return r
		}
		return '-'
	}, host)
	const mostHost = 48
	return word[:min(mostHost, len(word))]
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address) // an address without a port is no host either
	return host
}

// freePort is one of a host of this machine that nobody listens on at this moment.
func freePort(host string) (string, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("no free port: %w", err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
