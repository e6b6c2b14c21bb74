package security

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

var full = flag.Bool("full", false, "make every attempt of the matrix, and not each seventeenth")

const stride = 17

// examples is found before a test goes to where its server runs.
var examples, _ = filepath.Abs("../../events/examples")

// try is an attempt of somebody with a kit.
type try struct {
	by      *attacker
	what    string
	message *nats.Msg
	replay  bool // the message may be taken for a repeat, which has no effect
}

// says is a try to publish data on a subject.
func (a *attacker) says(subject string, data []byte, what string, args ...any) try {
	return try{by: a, what: fmt.Sprintf(what, args...), message: &nats.Msg{Subject: subject, Data: data}}
}

// verdict is what became of a try.
type verdict string

const (
	byServer  verdict = "refused by the server"
	byReader  verdict = "dropped with a reason"
	byNobody  verdict = "went nowhere"
	succeeded verdict = "SUCCEEDED"
)

// matrix is the attackers, their tries, and what became of them.
type matrix struct {
	*place
	attackers []*attacker
	reader    *bus.Bus // that of a service, which says what is wrong with a message
	counts    map[string]map[verdict]int
	rows      []string
	made      int
}

func newMatrix(t *testing.T) *matrix {
	p := open(t)
	m := &matrix{place: p, counts: map[string]map[verdict]int{}, reader: p.connect("planner")}
	if err := m.reader.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "n3", "user", "monitor", "negotiator", "planner", "restorer"} {
		m.attackers = append(m.attackers, p.attacker(name))
	}
	return m
}

// isNode reports whether an attacker is a node.
func (a *attacker) isNode() bool { return strings.HasPrefix(a.name, "n") && len(a.name) == 2 }

// isGuest reports whether an attacker is in the nodes' account.
func (a *attacker) isGuest() bool { return a.isNode() || a.name == "user" }

// role is an attacker's name in the catalogue, and source what he says events as.
func (a *attacker) role() string {
	if a.isNode() {
		return "node"
	}
	return a.name
}

func (a *attacker) source() string {
	if a.isNode() {
		return events.NodeSource(a.key)
	}
	return "/" + a.name
}

// row makes the tries of a row of the matrix, or some of them.
func (m *matrix) row(name string, tries []try) {
	m.Helper()
	for _, try := range tries {
		if m.made++; *full || m.made%stride == 0 {
			became := m.judge(try)
			m.count(name, became)
			if became == succeeded {
				m.Errorf("%s: %s %s", name, try.by.name, try.what)
			}
		}
	}
}

func (m *matrix) count(row string, became verdict) {
	if m.counts[row] == nil {
		m.counts[row] = map[verdict]int{}
		m.rows = append(m.rows, row)
	}
	m.counts[row][became]++
}

// judge makes a try, and tells what became of it.
func (m *matrix) judge(try try) verdict {
	m.Helper()
	answer, refused, err := try.by.publish(try.message)
	if err != nil {
		m.Fatal(err)
	}
	if refused {
		return byServer
	}
	if answer == nil {
		return byNobody
	}
	if answer.Header.Get("Status") != "" {
		return byNobody // nobody is there, or nothing
	}
	var said struct {
		Error     *struct{ Description string }
		Stream    string
		Duplicate bool
	}
	if json.Unmarshal(answer.Data, &said) != nil {
		return succeeded // something was read that is no answer of the API
	}
	switch {
	case said.Error != nil:
		return byServer
	case said.Duplicate && try.replay:
		return byNobody
	case said.Stream != events.Lane(cluster, events.EventStream.Name):
		return succeeded
	}
	_, _, err = m.reader.LastEvent(m.Context(), events.EventStream, try.message.Subject)
	if err == nil {
		return succeeded
	}
	return byReader
}

// tell prints the matrix.
func (m *matrix) tell() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "attempts\t%s\t%s\t%s\t%s\t  \n", byServer, byReader, byNobody, succeeded)
	all := map[verdict]int{}
	line := func(name string, counts map[verdict]int) (sum int) {
		for _, count := range counts {
			sum += count
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t  %s\n", sum, counts[byServer], counts[byReader], counts[byNobody], counts[succeeded], name)
		return sum
	}
	for _, row := range m.rows {
		line(row, m.counts[row])
		for became, count := range m.counts[row] {
			all[became] += count
		}
	}
	sum := line("all", all)
	table.Flush()
	if *full && sum < 5000 {
		m.Errorf("expected 5,000 attempts or more, made %d", sum)
	}
	for _, became := range []verdict{byServer, byReader} {
		if all[became] == 0 {
			m.Errorf("none was %s", became)
		}
	}
}

// TestEveryAttackIsRefused makes the attempts of people who have a kit, and of some who have none, on the server as it
// was provisioned.
func TestEveryAttackIsRefused(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.row("says what is another's to say", m.othersWords())
	m.row("speaks for another where the subject is its own", m.othersNames())
	m.row("takes the message id of another's event", m.othersIDs())
	m.row("removes, replaces or dates messages by a header", m.headers())
	m.row("asks the JetStream API for what it may not", m.api())
	m.row("publishes beside the streams", m.core())
	m.row("puts what is too large", m.oversized())
	m.row("says what is no event", m.malformed())
	m.replies()
	m.listens()
	m.strangers()
	m.tell()
	m.mayStill()
}

// words returns an event of a kind as its example has it, said by an attacker as somebody.
func (m *matrix) words(kind events.Kind, source, subject string) words {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(examples, string(kind)+".v1.json"))
	var example words
	if err == nil {
		err = json.Unmarshal(text, &example)
	}
	if err != nil {
		m.Fatal(err)
	}
	node, isNode := strings.CutPrefix(source, "/node/")
	if before, wasNode := strings.CutPrefix(example.Source, "/node/"); isNode && wasNode {
		example.Data = json.RawMessage(strings.ReplaceAll(string(example.Data), `"`+before+`"`, `"`+node+`"`))
	}
	if !isNode && kind.About() == events.AboutNode {
		example.Data = json.RawMessage(strings.ReplaceAll(string(example.Data), `"`+example.Subject+`"`, `"`+subject+`"`))
	}
	if isNode && kind.About() == events.AboutLink {
		example.Data = fmt.Appendf(nil, `{"from":%q,"to":"n9"}`, node)
	}
	m.made++
	example.ID, example.Source, example.Subject, example.Cluster = fmt.Sprintf("attempt-%d", m.made), source, subject, cluster
	example.Time = "2026-11-20T10:31:18.4Z"
	var blanks any
	if err := json.Unmarshal(example.Data, &blanks); err != nil {
		m.Fatal(err)
	}
	example.Data, _ = json.Marshal(blanks)
	return example
}

// othersWords tries every kind that is not the attacker's, about everybody, and those of nodes about other nodes.
func (m *matrix) othersWords() (tries []try) {
	for _, by := range m.attackers {
		for _, row := range events.Catalogue {
			for _, about := range []string{by.key, m.key("n2"), "negotiator", "g7-1", "8"} {
				if about == by.key && slices.Contains(row.SaidBy, by.role()) {
					continue
				}
				if slices.Contains(row.SaidBy, by.role()) && !by.isNode() &&
					(row.Kind.About() != events.AboutService || about == by.name) {
					continue // about whom it is to say it
				}
				subject := events.Event{Kind: row.Kind, Cluster: cluster, Subject: about}.SubjectBy(m.key("n2"))
				source := cmp.Or(row.SaidBy[0], by.role())
				if source == "node" {
					source = "node/" + m.key("n2")
				}
				data := by.sign(m.words(row.Kind, "/"+source, about))
				tries = append(tries, by.says(subject, data, "says %s", subject))
			}
		}
	}
	return tries
}

// subject returns where an attacker says an event of a kind about something.
func (a *attacker) subject(kind events.Kind, about string) string {
	return events.Event{Kind: kind, Cluster: cluster, Subject: about}.SubjectBy(a.key)
}

// own returns the subject on which an attacker may say a kind, and whether he may.
func (a *attacker) own(row events.Row) (id string, may bool) {
	switch row.Kind.About() {
	case events.AboutNode, events.AboutLink:
		id = a.key
	case events.AboutService:
		id = a.name
	case events.AboutUnit:
		id = "unit-3"
	case events.AboutGeneration:
		return "", false // a plan is for ever: nobody may spoil one, and nobody but the negotiator may try
	default:
		id = "x-" + a.name
	}
	return id, slices.Contains(row.SaidBy, a.role())
}

// othersNames has the attacker say on its own subjects that it is another, or what another did.
func (m *matrix) othersNames() (tries []try) {
	for _, by := range m.attackers {
		for _, row := range events.Catalogue {
			id, may := by.own(row)
			if !may {
				continue
			}
			subject := by.subject(row.Kind, id)
			for _, source := range []string{
				events.NodeSource(m.key("n2")), events.NodeSource("n2"), "/negotiator", "/user", "/monitor", "/node/", "/", "",
			} {
				if source == by.source() {
					continue
				}
				as := m.words(row.Kind, source, id)
				for _, data := range [][]byte{by.sign(as), as.write(""), as.write("AAAA")} {
					tries = append(tries, by.says(subject, data, "says %s as %q", row.Kind, source))
				}
			}
			if as := m.words(row.Kind, events.NodeSource(m.key("n2")), id); by.isNode() && strings.Contains(string(as.Data), m.key("n2")) {
				as.Source = by.source()
				tries = append(tries, by.says(subject, by.sign(as), "says %s with another's node", row.Kind))
			}
		}
	}
	return tries
}

// othersIDs has the attacker use the id under which a stream knows another's event already.
func (m *matrix) othersIDs() (tries []try) {
	victim := m.attacker("n2")
	for _, by := range m.attackers {
		for _, row := range events.Catalogue {
			id, may := by.own(row)
			if !may {
				continue
			}
			m.made++
			taken := fmt.Sprintf("taken-%d", m.made)
			said := &nats.Msg{
				Subject: events.EventSubject(cluster, events.NodeExited, victim.key), Header: nats.Header{"Nats-Msg-Id": {taken}},
				Data: victim.sign(m.words(events.NodeExited, victim.source(), victim.key)),
			}
			if answer, refused, err := victim.publish(said); err != nil || answer == nil {
				m.Fatalf("the victim cannot speak: refused %v, %v %s", refused, err, victim.conn.LastError())
			}
			message := &nats.Msg{
				Subject: by.subject(row.Kind, id),
				Header:  nats.Header{"Nats-Msg-Id": {taken}}, Data: by.sign(m.words(row.Kind, by.source(), id)),
			}
			what := "takes the id of another's event for " + string(row.Kind)
			tries = append(tries, try{by: by, what: what, message: message, replay: true})
		}
	}
	return tries
}
