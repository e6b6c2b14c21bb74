// Package provision makes the identities of a secured installation: keys and tokens of its operator, its accounts, each
// service, each institution and each node; a kit for everybody who connects; and the configuration of the NATS server.
//
// It is run where the operator's keys are kept, and again whenever somebody comes or goes. Everything that exists stays: a kit is written
// anew with the key that it had, and a token and a certificate that are as good as new.
package provision

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/shared/bus"
)

// Options say what to provision.
type Options struct {
	Dir         string   // of all keys and kits; it is made where it is missing
	Cluster     string   // default "default"
	Hosts       []string // names and addresses by which each NATS server is reached; default those of this machine alone
	Servers     []string // names by which each of several NATS servers is reached, which keep the log together; empty: there is one
	Leaf        string   // name by which the server of a site is reached, where the nodes that are named connect; empty: there is none
	Port        int      // of each NATS server; default 4222
	Institution string   // that the nodes belong to; empty: none is provisioned
	Nodes       []string // names of which kits are written
	Revoke      []string // names of the institution's nodes, of services, or public keys, that may not connect any more
	Remove      []string // names of institutions that do not take part any more, with all nodes that they enrolled
	Absolute    bool     // nats.conf has absolute paths: NATS runs from another folder than its own
}

// Folders of an installation. All but the server's are secret; a kit is the secret of who connects with it.
const (
	operatorFolder     = "operator"
	serverFolder       = "server"
	servicesFolder     = "services"
	institutionsFolder = "institutions"
)

// Security provisions. A server that runs hears of what changed by Push.
func Security(options Options) error {
	if err := options.check(); err != nil {
		return err
	}
	i, err := open(options)
	if err != nil {
		return err
	}
	for _, name := range options.Revoke {
		if err := i.revoke(name); err != nil {
			return err
		}
	}
	for _, name := range options.Remove {
		if err := i.remove(name); err != nil {
			return err
		}
	}
	if i.sites = i.checkRoom(); i.sites != nil {
		i.Nodes = nil
	}
	if err := i.write(); err != nil || i.sites == nil {
		return err
	}
	return siteFaults{i.sites}
}

func (o Options) check() error {
	switch {
	case o.Dir == "":
		return errors.New("--dir: expected a folder")
	case o.Cluster != "" && !events.Token(o.Cluster):
		return fmt.Errorf("--cluster: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %q", o.Cluster)
	case o.Institution == "" && len(o.Nodes) > 0:
		return errors.New("--institution: expected the name of who the nodes belong to")
	case o.Institution != "" && !events.Token(o.Institution):
		return fmt.Errorf("--institution: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %q", o.Institution)
	}
	if count := len(o.Servers); count == 2 || count != len(slices.Compact(slices.Sorted(slices.Values(o.Servers)))) {
		return fmt.Errorf("--server: expected one name, or at least three that differ, for two keep nothing that one does not: got %q", o.Servers)
	}
	for _, name := range append(o.Servers, o.Leaf) {
		if name != "" && name != filepath.Base(name) {
			return fmt.Errorf("--server, --leaf: expected the name of a host, got %q", name)
		}
	}
	for _, name := range o.Nodes {
		if !events.Token(name) {
			return fmt.Errorf("--node: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %q", name)
		}
	}
	return nil
}

// installation is what is provisioned.
type installation struct {
	Options
	operator, system, control, nodes nkeys.KeyPair
	authority                        *authority
	revoked                          map[string]int64           // when, by public key
	former                           map[string][]bus.FormerKey // of services and users, by their names
	leaves                           []string                   // all that were ever provisioned here
	sites                            error                      // what is wrong with the servers of sites
}

func open(options Options) (*installation, error) {
	i := &installation{Options: options}
	for _, folder := range []string{operatorFolder, serverFolder} {
		if err := os.MkdirAll(i.path(folder), 0o700); err != nil {
			return nil, fmt.Errorf("--dir: %w", err)
		}
	}
	for _, key := range []struct {
		name string
		into *nkeys.KeyPair
		make func() (nkeys.KeyPair, error)
	}{
		{"operator", &i.operator, nkeys.CreateOperator}, {"system", &i.system, nkeys.CreateAccount},
		{"control", &i.control, nkeys.CreateAccount}, {"nodes", &i.nodes, nkeys.CreateAccount},
	} {
		var err error
		if *key.into, err = keyAt(i.path(operatorFolder, key.name+".nk"), key.make); err != nil {
			return nil, err
		}
	}
	if err := i.settle(); err != nil {
		return nil, err
	}
	var err error
	if i.authority, err = openAuthority(i.path(operatorFolder), ""); err != nil {
		return nil, err
	}
	if i.revoked, err = readRevoked(i.path(operatorFolder, "revoked.json")); err != nil {
		return nil, err
	}
	i.former, err = readFormer(i.path(operatorFolder, formerFile))
	return i, err
}

// revoke ends what a name, or a key, was. Its kit goes; who is provisioned under the name again is another.
func (i *installation) revoke(name string) error {
	folder, err := i.kitOf(name)
	switch {
	case err != nil:
		return err
	case folder == "":
		return i.end(name) // a node that its institution enrolled elsewhere
	}
	known, err := bus.ReadIdentity(folder)
	if err != nil {
		return fmt.Errorf("--revoke: %w", err)
	}
	if err := i.end(known.Key); err != nil {
		return err
	}
	if filepath.Dir(folder) == i.path(servicesFolder) {
		if err := i.keepFormer(filepath.Base(folder), known.Key); err != nil {
			return err
		}
	}
	return os.RemoveAll(folder)
}

// kitOf returns the kit that has a name, or a public key, of which none need be here: empty.
func (i *installation) kitOf(name string) (string, error) {
	switch {
	case slices.Contains(i.roles(), name):
		return i.kit(name, name), nil
	case !nkeys.IsValidPublicUserKey(name):
		return i.kitNamed(name)
	}
	for _, kits := range []string{i.path(servicesFolder, "*"), i.path(institutionsFolder, "*", "*")} {
		folders, err := filepath.Glob(kits)
		if err != nil {
			return "", err
		}
		for _, folder := range folders {
			if known, err := bus.ReadIdentity(folder); err == nil && known.Key == name {
				return folder, nil
			}
		}
	}
	return "", nil
}

// kitNamed returns the kit of a node: of the institution that is named, or of the only one that has a node of that name.
func (i *installation) kitNamed(node string) (string, error) {
	files, err := filepath.Glob(i.path(institutionsFolder, cmp.Or(i.Institution, "*"), "*", bus.IdentityFile))
	if err != nil {
		return "", err
	}
	var kits, owners, all []string
	for _, file := range files {
		kit := filepath.Dir(file)
		owner, name := filepath.Base(filepath.Dir(kit)), filepath.Base(kit)
		all = append(all, owner+"/"+name)
		if name == node {
			kits, owners = append(kits, kit), append(owners, owner)
		}
	}
	switch len(kits) {
	case 0:
		return "", fmt.Errorf("--revoke: expected a service, a public key, or a node that has a kit here (%s), got %q",
			events.Shorten(strings.Join(all, ", "), mostListed), node)
	case 1:
		return kits[0], nil
	}
	return "", fmt.Errorf("--institution: expected one of %s, each of which has a node %q", strings.Join(owners, ", "), node)
}

const mostListed = 512 // bytes of the names of nodes that an error lists

// remove ends an institution: what its key signed, known here or not, is worth nothing any more. Its kits go, and its key; who is
// provisioned under the name again is another.
func (i *installation) remove(institution string) error {
	known, err := i.institutions()
	if err != nil {
		return err
	}
	if !slices.Contains(known, institution) {
		return fmt.Errorf("--remove: expected one of %v, got %q", known, institution)
	}
	kits := i.path(institutionsFolder, institution)
	files, err := filepath.Glob(filepath.Join(kits, "*", bus.IdentityFile))
	if err != nil {
		return err
	}
	for _, file := range files {
		identity, err := bus.ReadIdentity(filepath.Dir(file))
		if err == nil {
			err = i.end(identity.Key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return errors.Join(os.Remove(i.path(operatorFolder, institutionsFolder, institution+".nk")), os.RemoveAll(kits))
}

// write writes everything but the kits of nodes that are not named.
func (i *installation) write() error {
	if i.Institution != "" {
		if _, err := i.signer(i.Institution); err != nil {
			return err
		}
	}
	all := bus.Identity{Speakers: map[string]string{}, Former: i.former}
	for _, role := range i.roles() {
		key, err := i.keyOf(role, role)
		if err != nil {
			return err
		}
		all.Speakers[role] = public(key)
	}
	for _, role := range i.roles() {
		if err := i.writeKit(role, role, all); err != nil {
			return err
		}
	}
	for _, node := range i.Nodes {
		if err := i.writeKit(permission.Node, node, all); err != nil {
			return err
		}
	}
	if err := i.tellNodes(all); err != nil {
		return err
	}
	return errors.Join(i.handPolicy(), i.writeServers())
}

// tellNodes has the kits of all nodes, also those that are not written anew, know the services' keys, which a revocation
// changes, and what their nodes are called.
func (i *installation) tellNodes(all bus.Identity) error {
	files, err := filepath.Glob(i.path(institutionsFolder, "*", "*", bus.IdentityFile))
	if err != nil {
		return err
	}
	for _, file := range files {
		identity, err := bus.ReadIdentity(filepath.Dir(file))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		identity.Name, identity.Speakers, identity.Former = filepath.Base(filepath.Dir(file)), all.Speakers, all.Former
		if err := writeIdentity(filepath.Dir(file), identity); err != nil {
			return err
		}
	}
	return nil
}

func (i *installation) roles() []string {
	return append(slices.Clone(permission.Services), permission.User)
}

func (i *installation) path(parts ...string) string {
	return filepath.Join(append([]string{i.Dir}, parts...)...)
}

// institutions lists all that were ever provisioned here.
func (i *installation) institutions() ([]string, error) {
	files, err := os.ReadDir(i.path(operatorFolder, institutionsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, file := range files {
		names = append(names, file.Name()[:len(file.Name())-len(filepath.Ext(file.Name()))])
	}
	return names, err
}

// signer returns the key with which an institution enrols its nodes, and nothing but nodes.
func (i *installation) signer(institution string) (nkeys.KeyPair, error) {
	return keyAt(i.path(operatorFolder, institutionsFolder, institution+".nk"), nkeys.CreateAccount)
}

// institutionKeys returns the public keys with which the institutions enrol nodes and sign policies.
func (i *installation) institutionKeys() (map[string]string, error) {
	names, err := i.institutions()
	keys := map[string]string{}
	for _, name := range names {
		if err == nil {
			var key nkeys.KeyPair
			if key, err = i.signer(name); err == nil {
				keys[name] = public(key)
			}
		}
	}
	return keys, err
}
