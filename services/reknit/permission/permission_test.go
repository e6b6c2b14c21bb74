package permission

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

const cluster = "opticks"

// rights of everybody who may speak.
func everybody() map[string]Rights {
	all := map[string]Rights{"node": OfNode("n1", cluster, "_INBOX.n1"), User: OfUser("user", cluster, "_INBOX.user")}
	for _, service := range Services {
		all[service] = OfService(service, service, cluster, "_INBOX."+service)
	}
	return all
}

// allows reports whether one of the patterns has a subject.
func allows(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tokens := strings.Split(subject, ".")
		for i, token := range strings.Split(pattern, ".") {
			switch {
			case token == ">":
				return len(tokens) > i
			case i >= len(tokens) || token != "*" && token != tokens[i]:
				return false
			}
		}
		return len(tokens) == len(strings.Split(pattern, "."))
	})
}

func TestWhoSaysARowMayPublishItAndNobodyElse(t *testing.T) {
	for speaker, rights := range everybody() {
		for _, row := range events.Catalogue {
			own := map[events.About]string{events.AboutNode: "n1", events.AboutService: speaker}[row.Kind.About()]
			switch {
			case speaker == Node && row.Kind.About() == events.AboutLink:
				own = "n1"
			case own == "":
				own = "other"
			}
			event := events.Event{Kind: row.Kind, Cluster: cluster, Subject: own}
			if may := allows(rights.Publish, event.SubjectBy("n1")); may != slices.Contains(row.SaidBy, speaker) {
				t.Errorf("%s publishes %s: %v, and the catalogue says %v", speaker, event.SubjectBy("n1"), may, row.SaidBy)
			}
		}
	}
}

func TestNobodySpeaksForAnother(t *testing.T) {
	for _, try := range []struct{ speaker, subject string }{
		{"node", events.EventSubject(cluster, events.NodeExited, "n2")},
		{"node", events.EventSubject(cluster, events.JoinRequested, "n2")},
		{"node", events.EventSubject("another", events.NodeExited, "n1")},
		{"node", events.PulseSubject(cluster, "n2")},
		{"node", events.PulseSubject("another", "n1")},
		{"node", "_INBOX.n2.reply"},
		{"node", events.ProbeSubject(cluster, "n2")},
		{"node", events.EventSubject(cluster, events.DisconnectRequested, "link-of-n2")},
		{"node", events.EventSubject(cluster, events.ShardOffered, "unit-3")},
		{"node", events.EventSubject(cluster, events.ShardOffered, "unit-3.n2")},
		{"node", events.RelaySubject(cluster, "n2", "n3")},
		{"node", events.KeepSubject(cluster, "n2", "n3")},
		{"node", events.PreCopySubject(cluster, "n2", "n3")},
		{"node", events.ShardSubject(cluster, "n2", "n3")},
		{"node", events.LeaseSubject(cluster, "monitor", "n1")},
		{"monitor", events.EventSubject(cluster, events.LeaseTaken, "planner")},
		{"monitor", events.LeaseSubject(cluster, "planner", "monitor")},
		{"planner", "$KV.REKNIT_SNAPSHOTS_opticks." + cluster + ".monitor"},
		{"restorer", events.PlanSubject(cluster, "7")},
		{User, events.PulseSubject(cluster, "n1")},
		{User, "$O.REKNIT_PAYLOADS_opticks.C.x"},
	} {
		if allows(everybody()[try.speaker].Publish, try.subject) {
			t.Errorf("%s may publish %s", try.speaker, try.subject)
		}
	}
}

func TestNobodyHearsAnothersAnswers(t *testing.T) {
	for speaker, rights := range everybody() {
		for other := range everybody() {
			if other != speaker && !(speaker == "node" && other == "n1") && allows(rights.Subscribe, "_INBOX."+other+".x") {
				t.Errorf("%s may hear what %s is answered", speaker, other)
			}
		}
		if allows(rights.Subscribe, "_INBOX.n2.x") || allows(rights.Subscribe, events.RelaySubject(cluster, "n2", "*")) {
			t.Errorf("%s may hear what n2 is told", speaker)
		}
	}
}

func TestNobodyAltersOrPurgesAStreamButWhoDropsOldPlansAndWhoMakesRoomInTheLog(t *testing.T) {
	for speaker, rights := range everybody() {
		for _, verb := range []string{"UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE"} {
			for _, api := range []string{controlAPI, API} {
				for _, stream := range []string{"REKNIT_EVENTS_opticks", "REKNIT_PLANS_opticks", "KV_REKNIT_SNAPSHOTS_opticks",
					"OBJ_REKNIT_SHARDS_opticks"} {
					its := map[string]string{"negotiator": "REKNIT_PLANS_opticks", "monitor": "REKNIT_EVENTS_opticks"}[speaker]
					drops := verb == "PURGE" && api == controlAPI && stream == its
					if subject := api + ".STREAM." + verb + "." + stream; allows(rights.Publish, subject) != drops {
						t.Errorf("%s may publish %s: %v", speaker, subject, !drops)
					}
				}
			}
		}
	}
}

func TestANodeReadsTheLogByItsOwnConsumerOnly(t *testing.T) {
	node := everybody()["node"]
	for _, verb := range []string{"CREATE", "DELETE", "MSG.NEXT", "INFO"} {
		own, others := API+".CONSUMER."+verb+".REKNIT_EVENTS_opticks.n1", API+".CONSUMER."+verb+".REKNIT_EVENTS_opticks.opticks-monitor-X"
		if !allows(node.Publish, own) || allows(node.Publish, others) {
			t.Errorf("%s: its own %v, the monitor's %v", verb, allows(node.Publish, own), allows(node.Publish, others))
		}
	}
}

func TestNobodyReadsWritesOrMakesWhatIsAnotherClusters(t *testing.T) {
	for speaker, rights := range everybody() {
		for _, sort := range []string{"REKNIT_EVENTS", "REKNIT_PLANS", "KV_REKNIT_SNAPSHOTS", "KV_REKNIT_RENDEZVOUS", "OBJ_REKNIT_PAYLOADS",
			"OBJ_REKNIT_SHARDS"} {
			for _, verb := range []string{"STREAM.INFO.", "STREAM.CREATE.", "STREAM.MSG.GET.", "DIRECT.GET.", "STREAM.PURGE."} {
				for _, api := range []string{controlAPI, API} {
					for _, stream := range []string{sort, events.Lane("another", sort)} {
						if subject := api + "." + verb + stream; allows(rights.Publish, subject) || allows(rights.Publish, subject+".x") {
							t.Errorf("%s may ask %s", speaker, subject)
						}
					}
				}
			}
		}
		if consumer := API + ".CONSUMER.CREATE.REKNIT_EVENTS_another.n1"; allows(rights.Publish, consumer) {
			t.Errorf("%s may read by %s", speaker, consumer)
		}
	}
}

func TestANodeAsksForASignOfLifeUnderItsOwnNameOnly(t *testing.T) {
	mayAsk := func(name string) bool { return allows(everybody()["node"].Publish, events.ProbeSubject(cluster, name)) }
	if own, others := mayAsk("n1"), mayAsk("n2"); !own || others {
		t.Errorf("its own %v, of another %v", own, others)
	}
}

// A server refuses the second of two imports that lead a subject in a circle, and says so nowhere: the monitor's probes would
// find nobody. A node asks its own subject within the nodes' account.
func TestNoSubjectCrossesBothWays(t *testing.T) {
	for _, out := range OfControl(cluster) {
		for _, back := range OfNodes(cluster) {
			if out.Local == back.Subject || out.Subject == back.Local {
				t.Errorf("%s leads from the control account to the nodes', and back", out.Local)
			}
		}
	}
}

func TestWhatANodeMayAskReachesTheControlAccountUnderItsOwnName(t *testing.T) {
	for _, crossing := range OfControl(cluster) {
		if crossing.Service && strings.HasPrefix(crossing.Subject, API) {
			t.Errorf("%s is exported under the nodes' prefix", crossing.Subject)
		}
		if strings.Count(crossing.Subject, "*") != strings.Count(crossing.Local, "*") {
			t.Errorf("%s and %s have not the same wildcards", crossing.Subject, crossing.Local)
		}
	}
	plan := Crossing{Subject: events.PlanSubject(cluster, "*"), Local: events.PlanSubject(cluster, "*")}
	if !slices.Contains(OfControl(cluster), plan) {
		t.Error("nodes do not hear plans")
	}
}

// An event that users alone say led nowhere: only what nodes may publish crossed.
func TestWhateverAPersonSaysReachesTheControlAccountOnce(t *testing.T) {
	for _, subject := range said(User, cluster, "") {
		crossings := 0
		for _, crossing := range OfControl(cluster) {
			if crossing.Service && crossing.Local == subject {
				crossings++
			}
		}
		if crossings != 1 {
			t.Errorf("%s crosses %d times, expected once", subject, crossings)
		}
	}
}
