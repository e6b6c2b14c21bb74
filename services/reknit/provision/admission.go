package provision

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// AdmissionOptions say who may join, and who signs that.
type AdmissionOptions struct {
	Dir     string   // of the installation
	Cluster string   // default that of the installation
	Quorum  *int     // of how many institutions members must approve of a node that none lists; 0: it may not join; nil: as before
	Sign    []string // institutions whose keys sign; default all that are here

	// Add are the names of nodes, by institution, that are listed beside those of the policy that is there. Nil: all that have a kit are
	// listed, and nobody else.
	Add map[string][]string
}

// Admission writes the policy that lists all nodes of the installation, and signs it. Other institutions' signatures stay if the file has
// the same policy: each may sign where its key is.
func Admission(o AdmissionOptions) error {
	switch {
	case o.Dir == "":
		return errors.New("--dir: expected a folder")
	case o.Cluster != "" && !events.Token(o.Cluster):
		return fmt.Errorf("--cluster: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %q", o.Cluster)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, operatorFolder)); err != nil {
		return fmt.Errorf("--dir: expected a folder that reknit provision security, or reknit up --secured, has made: %w", err)
	}
	i, err := open(Options{Dir: o.Dir, Cluster: o.Cluster})
	if err != nil {
		return err
	}
	institutions, err := i.institutions()
	if err != nil {
		return err
	}
	if o.Quorum != nil && (*o.Quorum < 0 || *o.Quorum > len(institutions)) {
		return fmt.Errorf("--quorum: expected 0 to %d, as many as there are institutions, got %d", len(institutions), *o.Quorum)
	}
	signed, err := readSigned(filepath.Join(o.Dir, negotiator.AdmissionFile))
	if err != nil {
		return err
	}
	policy, err := i.policy(o, signed, institutions)
	if err != nil {
		return err
	}
	if err := signed.replace(policy); err != nil {
		return err
	}
	if len(o.Sign) == 0 {
		o.Sign = institutions
	}
	for _, institution := range o.Sign {
		if !slices.Contains(institutions, institution) {
			return fmt.Errorf("--sign: expected one of %v, got %q", institutions, institution)
		}
		if err := i.signPolicy(signed, institution); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(signed, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(o.Dir, negotiator.AdmissionFile), text, 0o644); err != nil {
		return err
	}
	return i.handPolicy()
}

// handPolicy puts the policy into the negotiator's kit once it counts: until then the one before does.
func (i *installation) handPolicy() error {
	keys, err := i.institutionKeys()
	if err != nil {
		return err
	}
	signed, err := readSigned(i.path(negotiator.AdmissionFile))
	if err != nil || len(signed.Policy) == 0 || negotiator.Signed(*signed).Verify(keys) != nil {
		return err
	}
	text, err := json.MarshalIndent(signed, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(i.path(servicesFolder, "negotiator", negotiator.AdmissionFile), text, 0o600)
}

// policy returns the policy that is to be signed.
func (i *installation) policy(o AdmissionOptions, before *signed, institutions []string) (policy negotiator.Policy, err error) {
	if len(before.Policy) > 0 {
		if err := json.Unmarshal(before.Policy, &policy); err != nil {
			return policy, fmt.Errorf("policy: %w", err)
		}
	}
	policy.Cluster = i.Cluster
	if o.Quorum != nil {
		policy.Quorum = *o.Quorum
	}
	policy.Quorum = min(policy.Quorum, len(institutions)) // some were removed
	if o.Add != nil {
		return policy, i.add(&policy, institutions, o.Add)
	}
	policy.Institutions, err = i.listed(institutions)
	return policy, err
}

// listed returns the keys of the nodes of each institution that have a kit.
func (i *installation) listed(institutions []string) (map[string][]string, error) {
	nodes := map[string][]string{}
	for _, institution := range institutions {
		files, err := filepath.Glob(i.path(institutionsFolder, institution, "*", bus.IdentityFile))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			identity, err := bus.ReadIdentity(filepath.Dir(file))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			nodes[institution] = append(nodes[institution], identity.Key)
		}
	}
	return nodes, nil
}

// add lists more nodes in a policy, and no institution that was removed.
func (i *installation) add(policy *negotiator.Policy, known []string, nodes map[string][]string) error {
	maps.DeleteFunc(policy.Institutions, func(name string, _ []string) bool { return !slices.Contains(known, name) })
	for institution, names := range nodes {
		for _, name := range names {
			identity, err := bus.ReadIdentity(i.path(institutionsFolder, institution, name))
			if err != nil {
				return err
			}
			if policy.Institutions == nil {
				policy.Institutions = map[string][]string{}
			}
			if listed := policy.Institutions[institution]; !slices.Contains(listed, identity.Key) {
				policy.Institutions[institution] = append(listed, identity.Key)
			}
		}
	}
	return nil
}

// signed is a policy with its signatures.
type signed negotiator.Signed

func readSigned(file string) (*signed, error) {
	s := &signed{Signatures: map[string]string{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// replace puts a policy in the place of the one before, as its next version and without its signatures, unless it says the
// same.
func (s *signed) replace(policy negotiator.Policy) error {
	var before negotiator.Policy
	if len(s.Policy) > 0 {
		if err := json.Unmarshal(s.Policy, &before); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	policy.Version = before.Version
	same, err := json.Marshal(before)
	if err != nil {
		return err
	}
	if s.Policy, err = json.Marshal(policy); err != nil || string(s.Policy) == string(same) {
		return err
	}
	policy.Version++
	s.Signatures = map[string]string{}
	s.Policy, err = json.Marshal(policy)
	return err
}

func (i *installation) signPolicy(s *signed, institution string) error {
	key, err := i.signer(institution)
	if err != nil {
		return err
	}
	text, err := negotiator.SignedText(s.Policy)
	if err != nil {
		return err
	}
	signature, err := key.Sign(text)
	s.Signatures[institution] = base64.RawURLEncoding.EncodeToString(signature)
	return err
}

func admission() *cobra.Command {
	var o AdmissionOptions
	var quorum int
	command := tell.Command(&cobra.Command{
		Use: "admission", Short: "write and sign the policy of who may join",
		Long: `Writes DIR/admission.json, which lists every node of the installation that has a kit, and signs it for the institutions
whose keys are here. Once more than half of the institutions have signed, the negotiator's kit has it, too, and a negotiator that runs
takes a later version.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("quorum") {
				o.Quorum = &quorum
			}
			if err := Admission(o); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: a negotiator takes it within a second where it lies in its kit, or REKNIT_ADMISSION names it\n", filepath.Join(o.Dir, negotiator.AdmissionFile))
			return nil
		},
	})
	flags := command.Flags()
	flags.StringVar(&o.Dir, "dir", "", "folder of all keys and kits")
	flags.StringVar(&o.Cluster, "cluster", "", "id of the cluster (default: that of the installation)")
	flags.IntVar(&quorum, "quorum", 0,
		"of how many institutions members must approve of a node that is not listed; 0: it may not join (default: as before, or 0)")
	flags.StringArrayVar(&o.Sign, "sign", nil, "institution whose key signs; again for each; default all that are here")
	return command
}
