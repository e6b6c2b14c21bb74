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

// writeLeafKit writes the kit with which the server of a site connects to the others. A token of it that allows anything else, such as
// to speak for a node that is gone, is good no more.
func (i *installation) writeLeafKit(leaf string) error {
	file := filepath.Join(i.kit(leafRole, leaf), bus.CredentialsFile)
	before, err := tokenIn(file)
	if err != nil {
		return err
	}
	if err := i.writeKit(leafRole, leaf, nil); err != nil {
		return err
	}
	now, err := tokenIn(file)
	if err != nil || before == nil {
		return err
	}
	same := func(a, b jwt.StringList) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	if same(before.Pub.Allow, now.Pub.Allow) && same(before.Sub.Allow, now.Sub.Allow) {
		return nil
	}
	return i.endBefore(now.Subject, time.Unix(now.IssuedAt-1, 0))
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
	if err != nil {
		return nil, fmt.Errorf("%s: %w", credentials, err)
	}
	return jwt.DecodeUserClaims(token)
}
