package negotiator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/shared/bus"
)

// Policy says who may join a cluster.
type Policy struct {
	Cluster      string              `json:"cluster"`
	Version      int                 `json:"version"`
	Quorum       int                 `json:"quorum"`       // of institutions, that must approve of a node that none lists; 0: it may not join
	Institutions map[string][]string `json:"institutions"` // the keys of the nodes of each that may join
}

// Signed is a policy with the signatures of institutions, by their names, over SignedText of it.
type Signed struct {
	Policy     json.RawMessage   `json:"policy"`
	Signatures map[string]string `json:"signatures"` // URL-safe base64 without padding
}

// SignedText is what an institution signs of a policy: the JSON without blanks.
func SignedText(policy json.RawMessage) ([]byte, error) {
	text := bytes.NewBufferString("reknit admission\n")
	err := json.Compact(text, policy)
	return text.Bytes(), err
}

// readAdmission reads a policy, which counts where more than half of the institutions that the kit knows have signed it.
func readAdmission(file, kit, cluster string) (admission protocol.Admission, err error) {
	if file == "" {
		return admission, nil
	}
	if kit == "" {
		return admission, errors.New("expected REKNIT_NATS_KIT, too: where nobody has a key anybody can come as anybody")
	}
	identity, err := bus.ReadIdentity(kit)
	if err != nil {
		return admission, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return admission, err
	}
	var signed Signed
	if err := strictly(text, &signed); err != nil {
		return admission, fmt.Errorf("%s: %w", file, err)
	}
	if err := signed.verify(identity.Institutions); err != nil {
		return admission, fmt.Errorf("%s: %w", file, err)
	}
	var policy Policy
	if err := strictly(signed.Policy, &policy); err != nil {
		return admission, fmt.Errorf("%s: policy: %w", file, err)
	}
	admission, err = policy.admission(cluster)
	if err != nil {
		return admission, fmt.Errorf("%s: policy: %w", file, err)
	}
	return admission, nil
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (s Signed) verify(institutions map[string]string) error {
	text, err := SignedText(s.Policy)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(institutions)) {
		key, err := nkeys.FromPublicKey(institutions[name])
		if err != nil {
			return fmt.Errorf("the kit's key of %s: %w", name, err)
		}
		signature, err := base64.RawURLEncoding.DecodeString(s.Signatures[name])
		if err != nil || key.Verify(text, signature) != nil {
			missing = append(missing, name)
		}
	}
	if 2*len(missing) >= len(institutions) {
		return fmt.Errorf("signatures: expected those of more than half of %d institutions, and these did not sign it as it is: %s",
			len(institutions), strings.Join(missing, ", "))
	}
	return nil
}

func (p Policy) admission(cluster string) (admission protocol.Admission, err error) {
	admission = protocol.Admission{Nodes: map[string]string{}, Quorum: p.Quorum}
	for name, nodes := range p.Institutions {
		for _, node := range nodes {
			if !nkeys.IsValidPublicUserKey(node) {
				return admission, fmt.Errorf("institutions.%s: expected public keys of nodes, got %.100q", name, node)
			}
			if other := admission.Nodes[node]; other != "" && other != name {
				return admission, fmt.Errorf("institutions: expected %s once, got it in %s and in %s", node, min(name, other), max(name, other))
			}
			admission.Nodes[node] = name
		}
	}
	switch {
	case p.Cluster != cluster:
		return admission, fmt.Errorf("cluster: expected %q, got %.100q", cluster, p.Cluster)
	case p.Quorum < 0 || p.Quorum > len(p.Institutions):
		return admission, fmt.Errorf("quorum: expected 0 to %d, as many as there are institutions, got %d", len(p.Institutions), p.Quorum)
	case len(admission.Nodes) == 0:
		return admission, errors.New("institutions: expected a node at least: without one nobody may join or approve")
	}
	return admission, nil
}
