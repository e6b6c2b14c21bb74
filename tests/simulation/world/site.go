package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// sites are where nodes stand that fall silent together.
type sites struct {
	cutOff  map[string]bool // site: its nodes reach one another, and nobody else
	without map[string]bool // site: its nodes reach nobody, not even one another
}

func (s sites) allWork() bool { return len(s.cutOff)+len(s.without) == 0 }

func newSites() sites { return sites{cutOff: map[string]bool{}, without: map[string]bool{}} }

// siteOf returns where a node stands; empty where the cluster has no sites.
func (w *World) siteOf(node string) string {
	if n := w.byName(node); n != nil {
		return n.site
	}
	return ""
}

// isAlone reports whether a node's site reaches nobody elsewhere.
func (w *World) isAlone(node string) bool {
	if w.allWork() {
		return false
	}
	site := w.siteOf(node)
	return w.cutOff[site] || w.without[site]
}

// apart reports whether two nodes do not hear each other because of where they stand.
func (w *World) apart(a, b string) bool {
	if w.allWork() {
		return false
	}
	at, other := w.siteOf(a), w.siteOf(b)
	return w.without[at] || w.without[other] || at != other && (w.cutOff[at] || w.cutOff[other])
}

// fail has a site be in one of the two states, until its time is over.
func (w *World) fail(state map[string]bool, a args) {
	site := a["SITE"]
	state[site] = true
	a.after(w, func() { delete(state, site) })
}

// powerFails ends all processes of a site at once, which nobody is told: no connection is reset.
func (w *World) powerFails(a args) {
	var there []*node
	w.without[a["SITE"]] = true
	for _, n := range w.nodes {
		if n.site == a["SITE"] {
			n.left = nil
		}
		if n.site == a["SITE"] && n.process != nil {
			n.process.kill()
			there = append(there, n)
		}
	}
	a.after(w, func() {
		delete(w.without, a["SITE"])
		for _, n := range there {
			w.launch(n)
		}
	})
}

// withSites has most seeds of six nodes stand at two sites, one of which fails. It draws by itself, so that what else a
// seed does is the same without.
func withSites(seed uint64, nodes int, faults []Fault) (sites int, with []Fault) {
	r := rand.New(rand.NewPCG(seed, 17))
	if nodes < 6 || r.IntN(4) == 0 {
		return 0, faults
	}
	what := []string{"uplink", "uplink", "switch", "power"}[r.IntN(4)]
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
	long := time.Duration(1+r.ExpFloat64()*20) * time.Second
	return 2, append(slices.Clone(faults), Fault{
		At: at.Truncate(time.Millisecond), Words: fmt.Sprintf("%s of s%d fails for %v", what, 1+r.IntN(2), long),
	})
}
