package overlay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// Names knows what people call nodes whose ids are public keys. A name is a claim of its node: it is shown, and no decision follows from
// it. A name that several nodes claim is that of the only one that is a member of the plan in force, or of nobody.
type Names struct {
	of      map[string]string   // by id; empty: it claims none
	claims  map[string][]string // ids, by name
	members map[string]bool     // of the plan in force
}

// NewNames returns names of nobody.
func NewNames() *Names { return &Names{of: map[string]string{}, claims: map[string][]string{}} }

// key is how a public key of a user is written, within a text too.
var key = regexp.MustCompile(`\bU[A-Z2-7]{55}\b`)

// begins is how the beginning of one is written that says whom it means. As a name it is nobody's: who claimed it would be meant
// in place of the node whose key begins so.
var begins = regexp.MustCompile(fmt.Sprintf(`^U[A-Z2-7]{%d,}$`, leastKey-1))

const (
	shortKey = 12 // characters of a key that are shown: nobody finds another key that begins alike, with 52 bits that are drawn
	leastKey = 4  // that say whom they mean: fewer may be a slip

	mostNames = 1 << 14 // that are remembered, those of nodes that are gone among them
)

// Take hears a join or a committed plan; others say no names.
func (n *Names) Take(event events.Event) {
	switch event.Kind {
	case events.JoinRequested:
		if join, err := events.Open[events.Join](event); err == nil {
			n.note(join.Node, join.Name)
		}
	case events.PlanCommitted:
		if plan, err := events.Open[events.Plan](event); err == nil {
			n.commit(plan)
		}
	}
}

func (n *Names) commit(plan events.Plan) {
	n.members = map[string]bool{}
	for _, member := range plan.Nodes {
		n.note(member.Node, cmp.Or(member.Name, n.of[member.Node]))
		n.members[member.Node] = true
	}
}

func (n *Names) note(id, name string) {
	if _, known := n.of[id]; !known && len(n.of) >= mostNames {
		n.forget()
	}
	if before := n.of[id]; before != "" {
		n.claims[before] = slices.DeleteFunc(n.claims[before], func(claims string) bool { return claims == id })
	}
	n.of[id] = name
	if name != "" && !key.MatchString(name) && !begins.MatchString(name) {
		n.claims[name] = append(n.claims[name], id)
	}
}

// forget drops all but members.
func (n *Names) forget() {
	all := n.of
	n.of, n.claims = map[string]string{}, map[string][]string{}
	for id := range n.members {
		n.note(id, all[id])
	}
}

// All returns what is shown in place of each key.
func (n *Names) All() map[string]string {
	all := map[string]string{}
	for id := range n.of {
		if key.MatchString(id) {
			all[id] = n.Shown(id)
		}
	}
	return all
}

// In returns what is shown in place of each key within a value, as its JSON has them.
func (n *Names) In(value any) map[string]string {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	shown := map[string]string{}
	for _, id := range key.FindAllString(string(text), -1) {
		shown[id] = n.Shown(id)
	}
	return shown
}

// called lists the nodes that a name may mean.
func (n *Names) called(name string) []string {
	all := n.claims[name]
	if members := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !n.members[id] }); len(members) > 0 {
		return members
	}
	return all
}

// Shown returns a text with the names of nodes in place of their keys. A key whose node claims no name is cut short.
func (n *Names) Shown(text string) string {
	return key.ReplaceAllStringFunc(text, func(id string) string {
		name, short := n.of[id], id[:shortKey]+"…"
		called := n.called(name)
		switch _, isID := n.of[name]; {
		case len(called) == 1 && called[0] == id && !isID:
			return name
		case len(called) > 0:
			return fmt.Sprintf("%s (%s)", name, short)
		}
		return short
	})
}

// Node returns the id of the node that is meant by its id, by the beginning of its key as it is shown, or by its name. It returns a name of
// no known node as it is.
func (n *Names) Node(meant string) (string, error) {
	if _, known := n.of[meant]; known {
		return meant, nil
	}
	called, beginning := n.called(meant), strings.TrimSuffix(meant, "…")
	for _, id := range slices.Sorted(maps.Keys(n.of)) {
		if n.claims[meant] == nil && len(beginning) >= leastKey && key.MatchString(id) && strings.HasPrefix(id, beginning) {
			called = append(called, id)
		}
	}
	switch len(called) {
	case 0:
		return meant, nil
	case 1:
		return called[0], nil
	}
	return "", fmt.Errorf("%s may be %s: expected the key of one", meant, strings.Join(called, " or "))
}

// Nodes returns the ids of the nodes that are meant.
func (n *Names) Nodes(meant []string) (ids []string, err error) {
	ids = make([]string, len(meant))
	for i := range meant {
		if ids[i], err = n.Node(meant[i]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
