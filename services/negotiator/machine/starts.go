package machine

import (
	"maps"
	"strings"
	"time"

	"github.com/reknit/reknit/services/negotiator/merit"
)

// starts are the processes of a host, a site or the cluster that failed soon after they came, each of which had come after the one
// before had failed: those that one outage ends together are one.
type starts struct {
	Failed float64   `json:"failed"`
	Last   time.Time `json:"last"` // by the log's clock
}

// crowd is whom a process is counted with.
type crowd struct {
	key  string
	of   string // whom it is about, in words
	free float64
}

const wholeCluster = "cluster"

// crowdsOf returns whom a process is counted with: its host, as others reach it, its site, and the cluster.
func crowdsOf(member *member) []crowd {
	host := member.Address[:max(0, strings.LastIndexByte(member.Address, ':'))]
	all := []crowd{{"host " + host, "on the host " + host, merit.FreeOfHost}, {wholeCluster, "of this cluster", merit.FreeOfCluster}}
	if member.Site != "" {
		all = append(all, crowd{"site " + member.Site, "at the site " + member.Site, merit.FreeOfSite})
	}
	return all
}

// noteStart counts a process that is gone soon after it came.
func (m *Machine) noteStart(gone *member, now time.Time) {
	if gone == nil || m.state.Plan == nil || !merit.Young(m.lived(gone.Node, now), m.stepSeconds()) {
		return
	}
	maps.DeleteFunc(m.state.Starts, func(_ string, s starts) bool { return merit.StartsForgotten(now.Sub(s.Last).Seconds()) })
	for _, crowd := range crowdsOf(gone) {
		before, known := m.state.Starts[crowd.key]
		if known && !gone.Asked.After(before.Last) || !known && len(m.state.Starts) >= merit.MostNodes {
			continue // of what is full the cluster is there
		}
		m.state.Starts[crowd.key] = starts{merit.AfterStart(before.Failed, now.Sub(before.Last).Seconds()), now}
	}
}

// failedStarts returns for how many seconds a process waits for those that failed where it comes from, and whose failures those are.
func (m *Machine) failedStarts(joiner *member, now time.Time) (wait float64, of string) {
	for _, crowd := range crowdsOf(joiner) {
		s := m.state.Starts[crowd.key]
		if merit.StartsForgotten(now.Sub(s.Last).Seconds()) {
			continue
		}
		if own := merit.WaitForOthers(s.Failed, crowd.free); own > wait {
			wait, of = own, crowd.of
		}
	}
	return wait, of
}
