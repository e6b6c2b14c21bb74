package detect

import (
	"maps"
	"slices"
)

// site is where nodes stand that share their way to the hub.
type site struct {
	Site
	suspected bool
	excused   float64 // seconds of silence since then
	unexcused int     // silent nodes that were not excused with most nodes of the cluster
}

// Site is how much is heard of a site.
type Site struct {
	Name          string
	Silent, Nodes int
}

// count brings the silence of each site up to date. A site without a name is none.
func (d *Detector) count(now float64) {
	for _, s := range d.sites {
		s.Silent, s.Nodes, s.unexcused = 0, 0, 0
	}
	for _, n := range d.nodes {
		if n.site == "" {
			continue
		}
		s := d.sites[n.site]
		if s == nil {
			s = &site{Site: Site{Name: n.site}}
			d.sites[n.site] = s
		}
		s.Nodes++
		unheard := s.suspected && !n.pulsed // since the detector before this one suspected its site
		if unheard || n.overdue(now) > d.settings.suspicion(n) {
			s.Silent++
			if !n.believed {
				s.unexcused++
			}
		}
	}
	maps.DeleteFunc(d.sites, func(_ string, s *site) bool { return s.Nodes == 0 })
}

// excuseSites lets no time pass for the nodes of sites most of whose nodes are silent, as long as that is more likely
// the site's way to the hub than its nodes, and returns what changed, in the order of the names. It is the
// rule for the hub itself, one level down.
func (d *Detector) excuseSites(now, passed float64) []Verdict {
	var verdicts []Verdict
	for _, name := range slices.Sorted(maps.Keys(d.sites)) {
		s := d.sites[name]
		switch {
		case !s.suspected && d.settings.most(s.unexcused, s.Nodes):
			s.suspected, s.excused = true, 0
			verdicts = append(verdicts, Verdict{State: Suspected, Site: s.Site})
		case s.suspected && !d.settings.most(s.Silent, s.Nodes):
			s.suspected = false
			verdicts = append(verdicts, Verdict{State: Green, Site: s.Site})
		}
		if s.suspected {
			s.excused += passed
		}
	}
	for _, n := range d.nodes {
		if s := d.sites[n.site]; s != nil && s.suspected && !n.believed && s.excused <= d.settings.SiteSeconds {
			n.excuse(now, passed)
		}
	}
	return verdicts
}
