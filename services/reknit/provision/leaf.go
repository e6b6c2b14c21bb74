package provision

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/shared/bus"
)

// nodesAt lists the public keys of the nodes that connect at the server of a site, as their kits say.
func (i *installation) nodesAt(leaf string) ([]string, error) {
	kits, err := filepath.Glob(i.path(institutionsFolder, "*", "*", "environment"))
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, file := range kits {
		environment, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		identity, err := bus.ReadIdentity(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(environment, []byte("REKNIT_NATS_URL="+i.url(leaf)+"\n")) {
			keys = append(keys, identity.Key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// siteFaults are what is wrong with servers of sites. All else was provisioned, and may be pushed.
type siteFaults struct{ error }

func (f siteFaults) Unwrap() error { return f.error }

// leafToken returns the token of the server of a site at which these nodes connect.
func (i *installation) leafToken(leaf string, claims *jwt.UserClaims, nodes []string) (string, error) {
	claims.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeLeafnode}
	claims.Permissions, claims.Limits.Subs = rightsOf(permission.OfLeaf(nodes, i.Cluster)), mostSubscriptionsOfSite
	token, err := claims.Encode(i.nodes)
	if err == nil && len(token) > jwt.MaxTokenSize {
		err = fmt.Errorf("site %s: the rights of %d nodes take %d bytes, expected at most %d: give some another server (--leaf)",
			leaf, len(nodes), len(token), jwt.MaxTokenSize)
	}
	return token, err
}

// checkRoom reports whether the nodes of this run fit at the server of their site, beside those that connect there already. Nothing is
// written yet.
func (i *installation) checkRoom() error {
	if i.Leaf == "" {
		return nil
	}
	key, err := i.keyOf(leafRole, i.Leaf)
	if err != nil {
		return err
	}
	nodes, err := i.nodesAt(i.Leaf)
	if err != nil {
		return err
	}
	for _, name := range i.Nodes {
		identity, err := bus.ReadIdentity(i.kit(permission.Node, name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // any key is as long
			nodes = append(nodes, public(key))
		case err != nil:
			return err
		case !slices.Contains(nodes, identity.Key):
			nodes = append(nodes, identity.Key)
		}
	}
	_, err = i.leafToken(i.Leaf, jwt.NewUserClaims(public(key)), nodes)
	return err
}

// writeLeafKit writes the kit with which the server of a site connects to the others. A token of it that allows anything else, such as
// to speak for a node that is gone, is good no more. Its end is noted first, for a run may stop at any time.
func (i *installation) writeLeafKit(leaf string) error {
	before, err := tokenIn(filepath.Join(i.kit(leafRole, leaf), bus.CredentialsFile))
	if err != nil {
		return err
	}
	nodes, err := i.nodesAt(leaf)
	if err != nil {
		return err
	}
	if before != nil && !same(before.Permissions, rightsOf(permission.OfLeaf(nodes, i.Cluster))) {
		then := time.Unix(before.IssuedAt, 0)
		if err := i.endBefore(before.Subject, then); err != nil {
			return err
		}
		wait := time.Until(then.Add(time.Second)) // a token says in seconds when it was written
		if wait > time.Second {
			return fmt.Errorf("site %s: expected that its token was written before now, got %v: is the clock here right?", leaf, then)
		}
		time.Sleep(wait)
	}
	return i.writeKit(leafRole, leaf, bus.Identity{})
}

// same reports whether a token allows what another does.
func same(a, b jwt.Permissions) bool {
	equal := func(a, b jwt.StringList) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	return equal(a.Pub.Allow, b.Pub.Allow) && equal(a.Pub.Deny, b.Pub.Deny) &&
		equal(a.Sub.Allow, b.Sub.Allow) && equal(a.Sub.Deny, b.Sub.Deny)
}

// tokenIn reads the token of a kit; nil where there is no kit.
func tokenIn(credentials string) (*jwt.UserClaims, error) {
	text, err := os.ReadFile(credentials)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var token string
	if err == nil {
		token, err = jwt.ParseDecoratedJWT(text)
	}
	var claims *jwt.UserClaims
	if err == nil {
		claims, err = jwt.DecodeUserClaims(token)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", credentials, err)
	}
	return claims, nil
}
