package up

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/services/reknit/provision"
)

// usualInstitution is whose a node is that names nobody.
const usualInstitution = "local"

// secret is the folder of an installation's keys and kits.
type secret struct{ folder string }

func (o options) secret() secret { return secret{filepath.Join(o.dir, "secret")} }

// kit is the folder of what a service, or the user, connects with.
func (s secret) kit(name string) string { return filepath.Join(s.folder, "services", name) }

// kit is what a service connects with; empty where nobody needs one.
func (o options) kit(service string) string {
	if !o.secured {
		return ""
	}
	return o.secret().kit(service)
}

// configuration is that of NATS.
func (s secret) configuration() string { return filepath.Join(s.folder, "server", "nats.conf") }

// checkSecured finds words that do not go together, and a folder in which the other kind of installation was begun: events of one are
// worth nothing in the other.
func (o options) checkSecured() error {
	exists := func(path string) bool { _, err := os.Stat(path); return !errors.Is(err, fs.ErrNotExist) }
	hasKeys := exists(o.secret().folder)
	switch {
	case !o.secured && len(o.nodes) > 0:
		return errors.New("--node: expected --secured beside it: without keys any node may join")
	case !o.secured && hasKeys:
		return fmt.Errorf("--secured: expected, for %s was begun with it; without keys: another --dir", o.dir)
	case o.secured && !hasKeys && exists(o.config().StoreDir):
		return fmt.Errorf("--secured: %s was begun without keys; expected another --dir", o.dir)
	}
	before, err := o.recall()
	if err != nil {
		return err
	}
	if before.Cluster != "" && before.Cluster != o.cluster {
		return fmt.Errorf("--cluster: expected %s, with which %s was begun, got %s", before.Cluster, o.dir, o.cluster)
	}
	for _, node := range o.nodes {
		institution, name := ownerOf(node)
		kit := filepath.Join(o.secret().folder, "institutions", institution, name)
		if slices.Contains(before.Nodes, institution+"/"+name) && !exists(kit) {
			return fmt.Errorf("--node: the kit of %s was revoked; expected another name, or first reknit provision security "+
				"--dir %s --institution %s --node %s", node, o.secret().folder, institution, name)
		}
		if !events.Token(institution) || !events.Token(name) {
			return fmt.Errorf("--node: expected NAME or INSTITUTION/NAME, each of 1 to 64 characters of A-Z a-z 0-9 - _, got %q", node)
		}
	}
	return nil
}

func ownerOf(node string) (institution, name string) {
	if institution, name, named := strings.Cut(node, "/"); named {
		return institution, name
	}
	return usualInstitution, node
}

// provision makes what is missing of an installation whose NATS listens on a port, writes the kits of all nodes for it, and has the
// institutions sign that these may join.
func (o options) provision(port int) error {
	nodes, err := o.secret().nodes()
	if err != nil {
		return err
	}
	named := map[string][]string{}
	for _, node := range o.nodes {
		institution, name := ownerOf(node)
		named[institution] = append(named[institution], name)
		nodes[institution] = append(nodes[institution], name)
	}
	common := provision.Options{
		Dir: o.secret().folder, Cluster: o.cluster, Hosts: o.hosts(), Port: port, Absolute: true,
	}
	if err := provision.Security(common); err != nil {
		return err
	}
	for institution, names := range nodes {
		theirs := common
		theirs.Institution, theirs.Nodes = institution, slices.Compact(slices.Sorted(slices.Values(names)))
		if err := provision.Security(theirs); err != nil {
			return err
		}
	}
	if err := provision.Admission(provision.AdmissionOptions{Dir: common.Dir, Cluster: o.cluster, Add: named}); err != nil {
		return err
	}
	return o.remember()
}

// memory is what is said once.
type memory struct {
	Cluster string   `json:"cluster"`
	Nodes   []string `json:"nodes"` // institution/name of all that were ever named
}

func (o options) memoryFile() string { return filepath.Join(o.secret().folder, "up.json") }

// recall returns what was said before; nothing where nothing was.
func (o options) recall() (before memory, err error) {
	text, err := os.ReadFile(o.memoryFile())
	if errors.Is(err, fs.ErrNotExist) {
		return before, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		return before, fmt.Errorf("--dir: %s: %w", o.memoryFile(), err)
	}
	return before, nil
}

// remember keeps what is said now beside what was said before.
func (o options) remember() error {
	known, err := o.recall()
	if err != nil {
		return err
	}
	known.Cluster = o.cluster
	for _, node := range o.nodes {
		institution, name := ownerOf(node)
		if named := institution + "/" + name; !slices.Contains(known.Nodes, named) {
			known.Nodes = append(known.Nodes, named)
		}
	}
	text, err := json.MarshalIndent(known, "", "  ")
	if err == nil {
		err = files.Replace(o.memoryFile(), text, 0o600)
	}
	return err
}

// nodes are the names of those that have a kit, by institution.
func (s secret) nodes() (map[string][]string, error) {
	kits, err := filepath.Glob(filepath.Join(s.folder, "institutions", "*", "*"))
	nodes := map[string][]string{}
	for _, kit := range kits {
		institution := filepath.Base(filepath.Dir(kit))
		nodes[institution] = append(nodes[institution], filepath.Base(kit))
	}
	return nodes, err
}

// hosts are the names by which NATS is reached: the first is in the kits.
func (o options) hosts() []string {
	hosts := []string{"127.0.0.1", "::1", "localhost"}
	name, err := os.Hostname()
	switch ip := net.ParseIP(o.host); {
	case !ip.IsUnspecified():
		return append([]string{o.host}, hosts...)
	case err == nil:
		return append([]string{name}, hosts...)
	}
	return hosts
}

// settings are those of a service that connects with its kit.
func (s secret) settings(service string) (map[string]string, error) {
	settings := map[string]string{"REKNIT_NATS_KIT": s.kit(service)}
	if service != "monitor" {
		return settings, nil
	}
	token, err := s.pageToken()
	settings["REKNIT_PAGE_TOKEN"] = token
	return settings, err
}

// pageToken is what a viewer of the page has to know: the environment's, or one that is drawn once.
func (s secret) pageToken() (string, error) {
	if token := os.Getenv("REKNIT_PAGE_TOKEN"); token != "" {
		return token, nil
	}
	kept, err := os.ReadFile(s.pageTokenFile())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(kept) == 0 { // an empty one, of a process that was killed, lets everybody in
		kept = []byte(rand.Text())
		err = files.Replace(s.pageTokenFile(), kept, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("--dir: the token of the page: %w", err)
	}
	return string(kept), nil
}

func (s secret) pageTokenFile() string { return filepath.Join(s.folder, "page-token") }

// tell says how each node and the user come in. The token is not printed: what is said here may be kept where others read.
func (s secret) tell(page, logs string, out io.Writer) error {
	nodes, err := s.nodes()
	if err != nil {
		return err
	}
	if page != "" {
		fmt.Fprintf(out, "http://%s/?token=$(cat %s) shows the cluster live\n", page, s.pageTokenFile())
	}
	fmt.Fprintf(out, "logs in %s, keys and kits in %s\n", logs, s.folder)
	if len(nodes) == 0 {
		fmt.Fprintln(out, "no node has a kit yet: start again with --node NAME, once for each, or add one now:")
	}
	for _, institution := range slices.Sorted(maps.Keys(nodes)) {
		for _, name := range nodes[institution] {
			fmt.Fprintf(out, "(set -a; . %s; reknit agent run -- COMMAND) starts %s of %s\n",
				filepath.Join(s.folder, "institutions", institution, name, "environment"), name, institution)
		}
	}
	fmt.Fprintf(out, "reknit provision security --dir %s --institution %s --node NAME, and then reknit provision admission --dir %s, let "+
		"in another node while this runs\n", s.folder, usualInstitution, s.folder)
	fmt.Fprintf(out, "(set -a; . %s; reknit status) tells how the cluster is, as all commands do with these settings\n",
		filepath.Join(s.kit(permission.User), "environment"))
	return nil
}
