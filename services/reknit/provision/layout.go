package provision

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/reknit/reknit/services/reknit/internal/files"
)

// Ports of the servers, beside that for clients.
const (
	routePort = "6222" // for the other servers of the cluster
	leafPort  = "7422" // for the servers of sites
)

// layout is what an installation consists of. Settings that a run of Security does not name stay as they were.
type layout struct {
	Cluster string   `json:"cluster"`
	Port    int      `json:"port"`
	Hosts   []string `json:"hosts"`
	Servers []string `json:"servers,omitempty"`
	Leaves  []string `json:"leaves,omitempty"`
}

// settle completes what is asked for by what was settled before, and remembers it.
func (i *installation) settle() error {
	file := i.path(operatorFolder, "layout.json")
	var before layout
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &before)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	i.Cluster = cmp.Or(i.Cluster, before.Cluster, "default")
	i.Port = cmp.Or(i.Port, before.Port, 4222)
	if len(i.Hosts) == 0 {
		i.Hosts = before.Hosts
	}
	if len(i.Servers) == 0 {
		i.Servers = before.Servers
	}
	if len(i.Hosts)+len(i.Servers) == 0 {
		i.Hosts = []string{"127.0.0.1", "::1", "localhost"}
	}
	i.leaves = before.Leaves
	if i.Leaf != "" && !slices.Contains(i.leaves, i.Leaf) {
		i.leaves = append(i.leaves, i.Leaf)
	}
	if data, err = json.MarshalIndent(layout{i.Cluster, i.Port, i.Hosts, i.Servers, i.leaves}, "", "  "); err != nil {
		return err
	}
	return files.Replace(file, data, 0o600)
}

// url is where a role finds NATS: nodes of a site at the server of the site, everybody else at all the others.
func (i *installation) url(leaf string) string {
	hosts := i.Servers
	switch {
	case leaf != "":
		hosts = []string{leaf}
	case len(hosts) == 0:
		hosts = i.Hosts[:1]
	}
	urls := make([]string, len(hosts))
	for n, host := range hosts {
		urls[n] = "nats://" + net.JoinHostPort(host, fmt.Sprint(i.Port))
	}
	return strings.Join(urls, ",")
}

// addresses are those of all servers of the cluster but one, on a port.
func (i *installation) addresses(but, port string) []string {
	var all []string
	for _, server := range i.hubs() {
		if server != but {
			all = append(all, net.JoinHostPort(server, port))
		}
	}
	return all
}

// hubs are the servers that keep the log.
func (i *installation) hubs() []string {
	if len(i.Servers) == 0 {
		return i.Hosts[:1]
	}
	return i.Servers
}
