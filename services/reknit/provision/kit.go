package provision

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/shared/bus"
)

// systemRole tells a running server of new tokens, and does nothing else. keeperRole mends streams that are full. leafRole is the server
// of a site.
const systemRole, keeperRole, leafRole = "system", "keeper", "leaf"

// kit returns the folder of a kit.
func (i *installation) kit(role, name string) string {
	switch role {
	case permission.Node:
		return i.path(institutionsFolder, i.Institution, name)
	case systemRole, keeperRole:
		return i.path(operatorFolder, role)
	case leafRole:
		return i.path(serverFolder, name)
	}
	return i.path(servicesFolder, name)
}

// keyOf returns the key that a kit has, a new one where there is no kit.
func (i *installation) keyOf(role, name string) (nkeys.KeyPair, error) {
	return keyAt(filepath.Join(i.kit(role, name), "key.nk"), nkeys.CreateUser)
}

func writeIdentity(folder string, identity bus.Identity) error {
	about, err := json.MarshalIndent(identity, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(folder, bus.IdentityFile), about, 0o600)
}

// writeKit writes what somebody connects with, who knows the keys of all.
func (i *installation) writeKit(role, name string, all bus.Identity) error {
	key, err := i.keyOf(role, name)
	if err != nil {
		return err
	}
	token, err := i.userToken(role, name, key)
	if err != nil {
		return err
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	credentials, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return err
	}
	identity := bus.Identity{Key: public(key), Speakers: all.Speakers, Former: all.Former}
	if slices.Contains(permission.Services, role) {
		if identity.Institutions, err = i.institutionKeys(); err != nil {
			return err
		}
	}
	if role == permission.Node || role == permission.User {
		identity.API = permission.API
	}
	var roles []*url.URL
	if role == permission.Node {
		roles = append(roles, mtls.NodeRole)
	}
	folder := i.kit(role, name)
	if err := writeIdentity(folder, identity); err != nil {
		return err
	}
	if err := writeCertificate(i.authority, folder, "", public(key), []string{public(key)}, roles...); err != nil {
		return err
	}
	for file, data := range map[string][]byte{
		bus.CredentialsFile: credentials, "environment": i.environment(role, folder, public(key)),
	} {
		if err := files.Replace(filepath.Join(folder, file), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// environment is what a program is to have in its environment, as docker and systemd read it. The path is where the kit is
// here: who moves it changes the line.
func (i *installation) environment(role, folder, key string) []byte {
	path, err := filepath.Abs(folder)
	if err != nil {
		path = folder
	}
	leaf := ""
	if role == permission.Node {
		leaf = i.Leaf
	}
	text := fmt.Sprintf("REKNIT_NATS_URL=%s\nREKNIT_CLUSTER=%s\nREKNIT_NATS_KIT=%s\n", i.url(leaf), i.Cluster, path)
	if role == permission.Node {
		text += fmt.Sprintf("REKNIT_AGENT_NODE=%s\nREKNIT_TRAINER_NODE=%s\n", key, key)
	}
	return []byte(text)
}
