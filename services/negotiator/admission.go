package negotiator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/machine"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/shared/bus"
)

// AdmissionFile is where the policy lies in the negotiator's kit.
const AdmissionFile = "admission.json"

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

// policyFile is where the policy is that counts, and what it was when it was read last.
type policyFile struct {
	file, kit, cluster string // file is empty where everybody who is let in may join
	text               []byte // of the file, as it counts
	refused            string // why the file as it is now counts for nothing; empty: it counts
	signed             []byte // the policy in force, as it was signed; nil: none is
	version            int    // of that
	looked             time.Time
}

// read reads the policy, which counts where more than half of the institutions that the kit knows have signed it.
func (p *policyFile) read() (admission protocol.Admission, err error) {
	if p.file == "" {
		return admission, nil
	}
	if p.kit == "" {
		return admission, errors.New("expected REKNIT_NATS_KIT, too: where nobody has a key anybody can come as anybody")
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		return admission, fmt.Errorf("expected the signed policy of who may join, without which nobody does (%s): %w", lists, err)
	}
	if admission, err = p.open(text); err != nil {
		return admission, fmt.Errorf("%s: %w", p.file, err)
	}
	p.text = text
	return admission, nil
}

func (p *policyFile) open(content []byte) (admission protocol.Admission, err error) {
	identity, err := bus.ReadIdentity(p.kit)
	if err != nil {
		return admission, fmt.Errorf("REKNIT_NATS_KIT: %w", err)
	}
	var signed Signed
	if err := strictly(content, &signed); err != nil {
		return admission, err
	}
	if err := signed.Verify(identity.Institutions); err != nil {
		return admission, err
	}
	var policy Policy
	if err := strictly(signed.Policy, &policy); err != nil {
		return admission, fmt.Errorf("policy: %w", err)
	}
	text, err := SignedText(signed.Policy)
	if err != nil {
		return admission, err
	}
	if p.signed != nil && !bytes.Equal(text, p.signed) && policy.Version <= p.version {
		return admission, fmt.Errorf("policy.version: expected more than %d, which is in force, got %d", p.version, policy.Version)
	}
	if admission, err = policy.admission(p.cluster); err != nil {
		return admission, fmt.Errorf("policy: %w", err)
	}
	p.signed, p.version, admission.Lists = text, policy.Version, lists
	return admission, nil
}

// lists says how a node gets into the policy. All nodes read it: where the keys are is nobody's business.
const lists = "reknit provision admission --dir DIR, where the keys are, lists all that have a kit; copy its admission.json to each negotiator"

// lookEvery is how soon a policy that was signed counts.
const lookEvery = time.Second

// next is look, once a second.
func (p *policyFile) next(now time.Time) (admission protocol.Admission, found bool) {
	if now.Sub(p.looked) < lookEvery {
		return admission, false
	}
	p.looked = now
	return p.look()
}

// look returns a policy that took the place of the one before; false where none did, or one that counts for nothing, which is read again
// until it counts: the kit may learn an institution's key later.
func (p *policyFile) look() (admission protocol.Admission, found bool) {
	if p.file == "" {
		return admission, false
	}
	if text, err := os.ReadFile(p.file); err != nil || bytes.Equal(text, p.text) {
		return admission, false // away, it counts as it was
	}
	admission, err := p.read()
	if err != nil {
		if p.refused != err.Error() {
			slog.Warn("the admission policy counts as it was before", "error", err)
		}
		p.refused = err.Error()
		return admission, false
	}
	p.refused = ""
	slog.Info("an admission policy takes the place of the one before", "file", p.file, "version", p.version)
	return admission, true
}

// admitting is a machine that admits by the policy that is there now.
type admitting struct {
	*machine.Machine
	policy *policyFile
}

// Tick looks at the policy first.
func (a admitting) Tick(now time.Time) []events.Event {
	if admission, found := a.policy.next(now); found {
		a.Admit(admission)
	}
	return a.Machine.Tick(now)
}

// Restore looks at the policy first, too. A negotiator that stood by has the one of its start, and the one before it may have taken a later.
func (a admitting) Restore(memory []byte) error {
	if admission, found := a.policy.look(); found {
		a.Admit(admission)
	}
	return a.Machine.Restore(memory)
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Verify returns an error, with the names of those who did not sign, unless more than half of the institutions signed the policy as it is.
// Their public keys are given by their names.
func (s Signed) Verify(institutions map[string]string) error {
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
	admission = protocol.Admission{Version: p.Version, Nodes: map[string]string{}, Quorum: p.Quorum}
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
	case p.Version < 1:
		return admission, fmt.Errorf("version: expected 1 at least, got %d", p.Version)
	case p.Quorum < 0 || p.Quorum > len(p.Institutions):
		return admission, fmt.Errorf("quorum: expected 0 to %d, as many as there are institutions, got %d", len(p.Institutions), p.Quorum)
	case len(admission.Nodes) == 0:
		return admission, errors.New("institutions: expected a node at least: without one nobody may join or approve")
	}
	return admission, nil
}
