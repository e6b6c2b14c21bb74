package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/consent"
)

// A node of gamma came in under the site alpha: whoever joins says its site itself.
func TestWhoJoinsIsNotOfTheSiteThatItNamesWhereItsInstitutionIsProven(t *testing.T) {
	for _, row := range []struct {
		secured     bool
		institution string
		joins       bool
	}{{true, "gamma", false}, {true, "", false}, {true, "alpha", true}, {false, "", true}} {
		m := New(Settings{Node: "n1", Secured: row.secured, Consent: consent.Policy{Allow: "alpha"}})
		reason, _ := m.objection(events.Event{}, events.Opening{
			Members: []events.Member{{Node: "n1"}, {Node: "n2", Site: "alpha"}},
			Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n2", Institution: row.institution}},
		})
		if (reason == "") != row.joins {
			t.Errorf("%+v: objects %q", row, reason)
		}
	}
}
