package detect_test

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

// watchSites watches five nodes of each of three sites.
func watchSites(t *testing.T) (c *clock, names map[string][]string) {
	c, names = watch(t), map[string][]string{}
	for _, site := range []string{"a", "b", "c"} {
		for i := range 5 {
			name := fmt.Sprint(site, i)
			names[site] = append(names[site], name)
			c.detector.Watch(detect.Watched{Node: name, Incarnation: "a", Site: site})
		}
	}
	c.pass(10, detect.Green, append(append(names["a"], names["b"]...), names["c"]...)...)
	return c, names
}

// lost counts the losses, and how often they came.
func (c *clock) lost() (nodes, times int) {
	last := ""
	for _, v := range c.verdicts {
		if v.State != detect.Lost {
			continue
		}
		if nodes++; fmt.Sprint(v.SilentSeconds) != last {
			last, times = fmt.Sprint(v.SilentSeconds), times+1
		}
	}
	return nodes, times
}

// sites are the verdicts on sites.
func (c *clock) sites() (said []string) {
	for _, v := range c.verdicts {
		if v.Node == "" {
			said = append(said, fmt.Sprintf("%s %d", v.Site.Name, v.State))
		}
	}
	return said
}

func TestTheSilenceOfASiteIsNobodysDeath(t *testing.T) {
	c, names := watchSites(t)
	well := append(names["b"], names["c"]...)
	c.pass(50, detect.Green, well...)
	c.pass(10, detect.Green, append(names["a"], well...)...)
	if nodes, _ := c.lost(); nodes > 0 || fmt.Sprint(c.sites()) != "[a 1 a 0]" {
		t.Errorf("%d nodes were lost, and of sites was said %v", nodes, c.sites())
	}
}

func TestASiteThatStaysSilentIsLostAtOnce(t *testing.T) {
	c, names := watchSites(t)
	took := c.pass(100, detect.Lost, append(names["b"], names["c"]...)...)
	if nodes, times := c.lost(); nodes != 5 || times != 1 {
		t.Errorf("%d nodes were lost at %d times", nodes, times)
	}
	c.pass(10, detect.Green, append(names["b"], names["c"]...)...)
	if said := fmt.Sprint(c.sites()); said != "[a 1]" {
		t.Errorf("nothing is heard of it, and was said %s", said)
	}
	if took < c.settings.SiteSeconds || took > c.settings.SiteSeconds+5 {
		t.Errorf("it took %.1f s", took)
	}
}

func TestOneOrTwoNodesOfASiteAreLostForThemselves(t *testing.T) {
	c, names := watchSites(t)
	took := c.pass(100, detect.Lost, append(names["a"][2:], append(names["b"], names["c"]...)...)...)
	if nodes, times := c.lost(); nodes != 2 || times != 1 || took > 6 || len(c.sites()) > 0 {
		t.Errorf("%d nodes were lost at %d times, after %.1f s, and of sites was said %v", nodes, times, took, c.sites())
	}
}

// Two nodes die within a second: the first waits for the second, and both are one change.
func TestWhatFallsSilentTogetherIsLostTogether(t *testing.T) {
	c := watch(t, "n1", "n2", "n3", "n4", "n5")
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4", "n5")
	c.pass(0.6, detect.Green, "n1", "n2", "n3", "n5")
	took := c.pass(100, detect.Lost, "n1", "n2", "n3")
	if c.detector.State("n4") != detect.Lost || c.detector.State("n5") != detect.Lost || took > 6 {
		t.Errorf("after %.1f s: %v", took, c.verdicts)
	}
}

// What the whole cluster is excused for, its only site is not excused for again.
func TestSilenceOfMostNodesIsExcusedOnce(t *testing.T) {
	for _, sites := range [][]string{{"a", "a", "a", "a"}, {"", "", "", ""}, {"a", "a", "a", "b"}} {
		c := watch(t)
		for i, site := range sites {
			c.detector.Watch(detect.Watched{Node: fmt.Sprint("n", i), Incarnation: "a", Site: site})
		}
		c.pass(10, detect.Green, "n0", "n1", "n2", "n3")
		took := c.pass(100, detect.Lost, "n3")
		if nodes, times := c.lost(); nodes != 3 || times != 1 || took > c.settings.CorrelatedSeconds+5 || len(c.sites()) > 0 {
			t.Errorf("sites %q: %d nodes were lost at %d times, after %.1f s, and of sites was said %v",
				sites, nodes, times, took, c.sites())
		}
	}
}

// Three of five nodes that name no site die, of 20 in all.
func TestNodesThatNameNoSiteStandAtNone(t *testing.T) {
	c, names := watchSites(t)
	var others []string
	for i := range 5 {
		others = append(others, fmt.Sprint("x", i))
		c.detector.Watch(detect.Watched{Node: others[i], Incarnation: "a"})
	}
	well := append(append(names["a"], names["b"]...), append(names["c"], others[3:]...)...)
	c.pass(10, detect.Green, append(well, others[:3]...)...)
	took := c.pass(100, detect.Lost, well...)
	if nodes, _ := c.lost(); nodes != 3 || took > 6 || len(c.sites()) > 0 {
		t.Errorf("%d nodes were lost after %.1f s, and of sites was said %v", nodes, took, c.sites())
	}
}

func TestTheSilenceOfASiteExcusesNobodyElse(t *testing.T) {
	c, names := watchSites(t)
	well := append(names["b"][1:], names["c"]...)
	took := c.pass(50, detect.Lost, well...)
	if nodes, _ := c.lost(); nodes != 1 || c.detector.State("b0") != detect.Lost || took > 6 {
		t.Errorf("%d nodes were lost after %.1f s: %v", nodes, took, c.verdicts)
	}
}
