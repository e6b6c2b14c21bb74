package permission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// mayPublish reports whether rights let somebody publish on a subject.
func (r Rights) mayPublish(subject string) bool {
	return allows(r.Publish, subject) && !allows(r.Deny, subject)
}

func TestTheServerOfASiteMayWhatItsNodesMayAndNothingOfOthers(t *testing.T) {
	site := OfLeaf([]string{"n1", "n2"}, cluster)
	for _, node := range []string{"n1", "n2", "n3"} {
		rights, is := OfNode(node, cluster, "_INBOX."+node), node != "n3"
		own := func(subject string) bool { return strings.Contains(subject, node) }
		for _, subject := range slices.DeleteFunc(rights.Publish, func(subject string) bool { return !own(subject) }) {
			if may := site.mayPublish(subject); may != (is && !slices.Contains(probes(cluster, node), subject)) {
				t.Errorf("may publish %s: %v", subject, may)
			}
		}
		for _, subject := range slices.DeleteFunc(rights.Subscribe, func(subject string) bool { return !own(subject) }) {
			if may := allows(site.Subscribe, subject); may != is {
				t.Errorf("may hear %s: %v", subject, may)
			}
		}
	}
}

func TestNothingThatANodeMayNotSayLeadsOutOfASite(t *testing.T) {
	site, node := OfLeaf([]string{"n1"}, cluster), OfNode("n1", cluster, "_INBOX.n1")
	for _, crossing := range OfControl(cluster) {
		subject := strings.NewReplacer("*", "n1", ">", "n1").Replace(crossing.Local)
		if crossing.Service && site.mayPublish(subject) != node.mayPublish(subject) {
			t.Errorf("the server of the site may publish %s: %v", subject, site.mayPublish(subject))
		}
	}
	if heard := events.EventSubject(cluster, events.MembershipRefused, "n2"); allows(site.Subscribe, heard) {
		t.Errorf("it hears %s", heard)
	}
}

// A token may have 1 MiB, in base64.
func TestTheRightsOfFiveHundredNodesFitIntoAToken(t *testing.T) {
	var nodes []string
	for n := range 500 {
		nodes = append(nodes, fmt.Sprintf("U%055d", n))
	}
	rights, bytes := OfLeaf(nodes, cluster), 0
	for _, subject := range slices.Concat(rights.Publish, rights.Subscribe, rights.Deny) {
		bytes += len(subject) + len(`"",`)
	}
	if bytes = bytes * 4 / 3; bytes > 1<<20 {
		t.Errorf("expected at most 1 MiB, got %d bytes, %d a node", bytes, bytes/len(nodes))
	}
	if nobody := OfLeaf(nil, cluster); len(nobody.Publish)+len(nobody.Subscribe) > 0 {
		t.Errorf("the server of a site without a node may %v", nobody)
	}
}
