// Package consent is the policy of who runs a node: with whom, when and for how many bytes it takes part in a change that others ask for.
// The policy is not asked about a change that nobody can refuse: a failure or a leave.
package consent

import (
	"fmt"
	"regexp"
	"time"
)

// Policy is what a node's institution sets. The zero policy accepts everything.
type Policy struct {
	Allow string `env:"REKNIT_CONSENT_ALLOW" unit:"ids, with commas" reason:"none: everybody may join; else the nodes, and all of the sites, that may. With a kit: of the institutions, as the admission policy lists them"`
	Sites int    `env:"REKNIT_CONSENT_SITES" envDefault:"0" unit:"a whole number of sites" example:"2" reason:"0: any; this node lets nobody join where fewer sites than these take part"`
	Hours string `env:"REKNIT_CONSENT_HOURS" unit:"HH:MM-HH:MM, UTC" reason:"none: always; else when somebody may join"`
	Bytes int64  `env:"REKNIT_CONSENT_BYTES" envDefault:"0" unit:"a whole number of bytes" example:"1073741824" reason:"0: any; this node lets nobody join where it may have to give more than these"`
}

// Node is one that takes part, and where it stands, as it says itself.
type Node struct {
	Name, Site  string
	Proven      bool   // its name is its key, and Institution counts in place of Site
	Institution string // that lists it in a signed policy; empty: none does
}

// Question is what a change means to a node.
type Question struct {
	At      time.Time // on the clock of the log
	Joining []Node    // others
	Members []Node    // who is to take part after the change
	Bytes   int64     // that this node holds: it gives no more to who joins
}

// rules say why a policy objects; empty where it does not. A file holds one.
var rules = []func(Policy, Question) string{allowed, quorate, inHours, bounded}

// Objection returns why the node does not take part in a change; empty where it does. There is none if nobody joins.
func (p Policy) Objection(question Question) string {
	if len(question.Joining) == 0 {
		return ""
	}
	for _, rule := range rules {
		if objection := rule(p, question); objection != "" {
			return objection
		}
	}
	return ""
}

// id is one of a node or a site, as events bounds it: a pure package reads no events.
var id = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate names the setting that is not as expected.
func (p Policy) Validate() error {
	for _, name := range p.allows() {
		if p.Allow != "" && !id.MatchString(name) {
			return fmt.Errorf("REKNIT_CONSENT_ALLOW: expected ids of nodes and sites, with commas, got %.80q in %.80q", name, p.Allow)
		}
	}
	if from, to, err := p.hours(); err != nil || p.Hours != "" && from == to {
		return fmt.Errorf("REKNIT_CONSENT_HOURS: expected HH:MM-HH:MM, two times that differ, got %.80q", p.Hours)
	}
	if p.Sites < 0 {
		return fmt.Errorf("REKNIT_CONSENT_SITES: expected 0 or more, got %d", p.Sites)
	}
	if p.Bytes < 0 {
		return fmt.Errorf("REKNIT_CONSENT_BYTES: expected 0 or more, got %d", p.Bytes)
	}
	return nil
}
