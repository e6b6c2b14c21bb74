package security

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// said returns the subjects on which an attacker may say something, with something that he may say there.
func (m *matrix) said(by *attacker) (rows []events.Row, messages []*nats.Msg) {
	for _, row := range events.Catalogue {
		if id, may := by.own(row); may {
			subject := by.subject(row.Kind, id)
			rows = append(rows, row)
			messages = append(messages, &nats.Msg{Subject: subject, Data: by.sign(m.words(row.Kind, by.source(), id))})
		}
	}
	return rows, messages
}

// headers tries what a header can have a stream do: remove what is there, or store something for later.
func (m *matrix) headers() (tries []try) {
	for _, by := range m.attackers {
		_, messages := m.said(by)
		for _, bucket := range []string{"$O.REKNIT_PAYLOADS_opticks.M.x", "$O.REKNIT_SHARDS_opticks.M.x", "$O.REKNIT_PLAN_PAYLOADS_opticks.M.x",
			by.api + ".$KV.REKNIT_RENDEZVOUS_opticks." + cluster + ".1.x", "$KV.REKNIT_SNAPSHOTS_opticks." + cluster + "." + by.name} {
			messages = append(messages, &nats.Msg{Subject: bucket, Data: []byte("{}")})
		}
		for _, message := range messages {
			for _, header := range [][2]string{
				{"Nats-Rollup", "all"}, {"Nats-Rollup", "sub"}, {"Nats-TTL", "1s"}, {"Nats-Schedule", "@at 2027-01-01T00:00:00Z"},
				{"Nats-Incr", "1"},
			} {
				tries = append(tries, try{by: by, what: fmt.Sprintf("%v on %s", header, message.Subject), message: &nats.Msg{
					Subject: message.Subject, Data: message.Data, Header: nats.Header{header[0]: {header[1]}},
				}})
			}
		}
	}
	return tries
}

// streams are all that a secured installation has.
var streams = []string{
	"REKNIT_EVENTS_opticks", "REKNIT_PLANS_opticks", "KV_REKNIT_SNAPSHOTS_opticks", "KV_REKNIT_RENDEZVOUS_opticks",
	"OBJ_REKNIT_PAYLOADS_opticks", "OBJ_REKNIT_PLAN_PAYLOADS_opticks", "OBJ_REKNIT_SHARDS_opticks",
}

// api tries to alter, drop and copy streams, to use the consumers of others, and to read what is not for the attacker.
func (m *matrix) api() (tries []try) {
	for _, by := range m.attackers {
		var subjects []string
		for _, stream := range streams {
			for _, verb := range []string{
				"STREAM.UPDATE.%s", "STREAM.DELETE.%s", "STREAM.PURGE.%s", "STREAM.MSG.DELETE.%s", "STREAM.SNAPSHOT.%s",
				"STREAM.RESTORE.%s", "STREAM.LEADER.STEPDOWN.%s", "STREAM.PEER.REMOVE.%s", "CONSUMER.NAMES.%s", "CONSUMER.LIST.%s",
				"CONSUMER.DURABLE.CREATE.%s.victim", "CONSUMER.PAUSE.%s.victim", "CONSUMER.UNPIN.%s.victim",
				"CONSUMER.LEADER.STEPDOWN.%s.victim", "STREAM.CREATE.X%s",
			} {
				dropsPlans := by.name == "negotiator" && strings.Contains(stream, "PLAN") // the old ones
				makesRoom := by.name == "monitor" && strings.Contains(stream, "EVENTS")
				if verb == "STREAM.PURGE.%s" && (dropsPlans || makesRoom) {
					continue
				}
				subjects = append(subjects, fmt.Sprintf(verb, stream))
			}
			if by.isGuest() {
				subjects = append(subjects, "STREAM.CREATE."+stream, "CONSUMER.RESET."+stream+".victim")
			}
			isLog := strings.HasPrefix(stream, "REKNIT_")
			if by.isGuest() && isLog || strings.HasPrefix(stream, "OBJ_") || stream == "KV_REKNIT_SNAPSHOTS_opticks" {
				for _, verb := range []string{"CREATE", "DELETE", "MSG.NEXT", "INFO"} {
					subjects = append(subjects, fmt.Sprintf("CONSUMER.%s.%s.victim", verb, stream),
						fmt.Sprintf("CONSUMER.%s.%s.%s", verb, stream, m.key("n2")))
				}
			}
		}
		subjects = append(subjects, "INFO", "STREAM.LIST", "STREAM.NAMES", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.X",
			"STREAM.MSG.GET.KV_REKNIT_SNAPSHOTS_opticks", "DIRECT.GET.KV_REKNIT_SNAPSHOTS_opticks",
			"DIRECT.GET.KV_REKNIT_SNAPSHOTS_opticks.$KV.REKNIT_SNAPSHOTS_opticks."+cluster+".somebody",
			"STREAM.INFO.REKNIT_EVENTS_another", "STREAM.MSG.GET.REKNIT_EVENTS_another", "DIRECT.GET.OBJ_REKNIT_SHARDS_another",
			"CONSUMER.CREATE.REKNIT_EVENTS_another."+by.key)
		for _, subject := range subjects {
			for _, prefix := range []string{"$JS.API.", "reknit.js."} {
				tries = append(tries, by.says(prefix+subject, []byte("{}"), "asks %s", prefix+subject))
			}
		}
	}
	return tries
}

// toNode lists what nodes say to a node beside the log, as somebody says it.
func toNode(node, speaker string) []string {
	return []string{
		events.RelaySubject(cluster, node, speaker), events.KeepSubject(cluster, node, speaker),
		events.PreCopySubject(cluster, node, speaker), events.ShardSubject(cluster, node, speaker),
	}
}

// core tries to speak for others where there is no stream, or into a stream past the catalogue.
func (m *matrix) core() (tries []try) {
	for _, by := range m.attackers {
		subjects := []string{
			events.PulseSubject(cluster, m.key("n2")), events.PulseSubject("another", by.key), "_INBOX." + m.key("n2") + ".x",
			"_INBOX." + m.key("planner") + ".x", "_INBOX.x", "_R_.x.y", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO",
			"$SYS.REQ.ACCOUNT." + by.key + ".INFO", "$JS.ACK.REKNIT_PLANS_opticks.x.1.1.1.1.1", "$JS.FC.REKNIT_EVENTS_opticks.x", "$JSC.R.x",
			"reknit.event.another.node.exited." + by.key, "reknit.event." + cluster, "reknit.event." + cluster + ".x",
			"reknit.event." + cluster + ".node.invented." + by.key, "reknit.plan.another.1", "reknit.plan." + cluster, "reknit.x", "x",
			"$KV.REKNIT_SNAPSHOTS_opticks." + cluster + ".somebody", "$KV.REKNIT_SNAPSHOTS_opticks.another." + by.name,
			"$KV.REKNIT_RENDEZVOUS_opticks.another.1.x",
			"reknit.js.$KV.REKNIT_RENDEZVOUS_opticks.another.1.x", "reknit.js.$KV.REKNIT_SNAPSHOTS_opticks." + cluster + ".monitor", "$O.OTHER.M.x",
			events.ShardSubject("another", m.key("n2"), by.key), events.PreCopySubject("another", m.key("n2"), by.key), "shards.warm.other",
		}
		for _, speaker := range []string{"", m.key("n2"), "negotiator", by.key + ".x"} {
			subjects = append(subjects, toNode(m.key("n2"), speaker)...)
		}
		if by.name != "monitor" {
			subjects = append(subjects, events.ProbeSubject(cluster, m.key("n2")))
			if !by.isNode() {
				subjects = append(subjects, events.ProbeSubject(cluster, by.key))
			}
		}
		if by.name != "planner" {
			subjects = append(subjects, events.PolicySubject(cluster, "x"))
		}
		for _, service := range []string{"monitor", "negotiator", "planner", "restorer"} {
			if service != by.name {
				subjects = append(subjects, events.LeaseSubject(cluster, service, m.key("restorer")),
					events.LeaseSubject(cluster, service, ""), "$KV.REKNIT_SNAPSHOTS_opticks."+cluster+"."+service)
			}
		}
		if !by.isNode() {
			subjects = append(subjects, "$O.REKNIT_SHARDS_opticks.C.x", events.PulseSubject(cluster, by.key))
			subjects = append(subjects, toNode(m.key("n2"), by.key)...)
		}
		if by.isGuest() {
			subjects = append(subjects, "$O.REKNIT_PLAN_PAYLOADS_opticks.C.x", "$O.REKNIT_PLAN_PAYLOADS_opticks.M.x",
				"$JS.ACK.REKNIT_EVENTS_opticks.victim.1.1.1.1.1")
		}
		for _, subject := range subjects {
			tries = append(tries, by.says(subject, []byte("{}"), "publishes %s", subject))
		}
	}
	return tries
}

// oversized tries more than an event may have, and more than a message.
func (m *matrix) oversized() (tries []try) {
	for _, by := range m.attackers {
		_, messages := m.said(by)
		for _, message := range messages {
			for _, bytes := range []int{events.MaxEventBytes + 1 - len(message.Data), 300 << 10, 900 << 10, 2 << 20} {
				padded := slices.Concat(message.Data, []byte(strings.Repeat(" ", bytes)))
				tries = append(tries, by.says(message.Subject, padded, "%d bytes on %s", len(padded), message.Subject))
			}
			header := nats.Header{"X": {strings.Repeat("x", 2<<20)}}
			long := &nats.Msg{Subject: message.Subject, Data: message.Data, Header: header}
			tries = append(tries, try{by: by, what: "a header of 2 MiB", message: long})
		}
	}
	return tries
}

// What nodes say beside the log, no stream bounds: heartbeats, frames for others, values for those who train with them.
func TestANodeSaysNoMoreThanAMebibyteAtOnceAnywhere(t *testing.T) {
	m := newMatrix(t)
	node := m.attackers[0]
	for _, subject := range []string{
		events.PulseSubject(cluster, node.key), events.RelaySubject(cluster, m.key("n3"), node.key),
		node.api + ".$KV." + events.Lane(cluster, events.RendezvousBucket) + "." + cluster + ".1.key",
	} {
		for bytes, tooLarge := range map[int]bool{1<<20 - 4<<10: false, 1<<20 + 1: true} {
			if refused := node.isRefusedAtOnce(subject, make([]byte, bytes)); refused != tooLarge {
				t.Errorf("%d bytes on %s: refused %t, expected %t", bytes, subject, refused, tooLarge)
			}
		}
	}
}

// malformed tries what is no event, or none of that kind. Where it is read far enough, it is signed by who says it.
func (m *matrix) malformed() (tries []try) {
	for _, by := range m.attackers {
		rows, messages := m.said(by)
		for i, message := range messages {
			whole, kind := message.Data, rows[i].Kind
			id, _ := by.own(rows[i])
			bad := [][]byte{nil, []byte("null"), []byte("[]"), []byte("{}"), []byte("\xff\xfe"), []byte(strings.Repeat("[", 60_000)), []byte("NaN"),
				bytes.ReplaceAll(whole, []byte(`"1.0"`), []byte(`"2.0"`)), bytes.ReplaceAll(whole, []byte(".v1"), []byte(".v9")),
				bytes.ReplaceAll(whole, []byte("io.reknit"), []byte("io.other")), bytes.ReplaceAll(whole, []byte(`"id"`), []byte(`"ID2"`)),
				bytes.ReplaceAll(whole, []byte(`"`+cluster+`"`), []byte(`"another"`)), append(bytes.Clone(whole), '}'),
				append(bytes.Clone(whole), whole...),
			}
			for cut := range 8 {
				bad = append(bad, whole[:len(whole)*cut/8])
			}
			for _, change := range []func(*words){
				func(w *words) { w.Data = []byte("null") }, func(w *words) { w.Data = []byte("{}") }, func(w *words) { w.Data = []byte("[1]") },
				func(w *words) { w.Data = []byte(`"x"`) }, func(w *words) {
					w.Data = []byte(`{"node":3,"negotiation":3,"from":3,"service":3,"reason":3,"unit":"x"}`)
				},
				func(w *words) { w.Cluster = "another" }, func(w *words) { w.ID = "a b" }, func(w *words) { w.ID = strings.Repeat("x", 65) },
				func(w *words) { w.Subject = "another" }, func(w *words) { w.Subject = "*" }, func(w *words) { w.Type = "io.reknit.plan.committed.v1" },
			} {
				as := m.words(kind, by.source(), id)
				change(&as)
				bad = append(bad, by.sign(as))
			}
			for _, data := range bad {
				tries = append(tries, by.says(message.Subject, data, "%.60q on %s", data, message.Subject))
			}
		}
	}
	return tries
}

// replies has the server's own answers go to where the attacker may not publish: an acknowledgement, a message of a
// stream, an object that the attacker put. Those of services are not tried: who speaks for the cluster is trusted with its
// streams.
func (m *matrix) replies() {
	const row = "has the server answer to where it may not publish"
	type aim struct {
		by      *attacker
		subject string
	}
	var aims []aim
	for _, by := range m.attackers {
		if !by.isGuest() {
			continue
		}
		_, own := m.said(by)
		consumer := `{"stream_name":"REKNIT_EVENTS_opticks","config":{"name":"` + by.key + `","ack_policy":"none","mem_storage":true}}`
		_, _, _ = by.publish(&nats.Msg{Subject: "$O.REKNIT_SHARDS_opticks.C.forged", Data: own[0].Data})
		asks := []*nats.Msg{
			own[0],
			{Subject: by.api + ".STREAM.INFO.REKNIT_EVENTS_opticks"},
			{Subject: by.api + ".STREAM.MSG.GET.REKNIT_EVENTS_opticks", Data: []byte(`{"seq":1}`)},
			{Subject: by.api + ".DIRECT.GET.OBJ_REKNIT_SHARDS_opticks", Data: []byte(`{"seq":1}`)},
			{Subject: by.api + ".CONSUMER.CREATE.REKNIT_EVENTS_opticks." + by.key, Data: []byte(consumer)},
			{Subject: by.api + ".CONSUMER.MSG.NEXT.REKNIT_EVENTS_opticks." + by.key, Data: []byte(`{"batch":3}`)},
		}
		for _, kind := range events.Catalogue {
			for n, ask := range asks {
				if m.made++; !*full && m.made%stride != 0 {
					continue
				}
				event := events.Event{Kind: kind.Kind, Cluster: cluster, Subject: fmt.Sprintf("reply-%d-%d", len(aims), n)}
				aims = append(aims, aim{by, event.SubjectName()})
				message := &nats.Msg{Subject: ask.Subject, Data: ask.Data, Reply: event.SubjectName()}
				if err := by.conn.PublishMsg(message); err != nil {
					m.Fatal(err)
				}
			}
		}
		if err := by.conn.Flush(); err != nil {
			m.Fatal(err)
		}
	}
	time.Sleep(time.Second) // nobody answers where nothing comes
	for _, aim := range aims {
		stream := events.EventStream
		if strings.HasPrefix(aim.subject, "reknit.plan.") {
			stream = events.PlanStream
		}
		became := byNobody
		if _, found, err := m.reader.LastEvent(m.Context(), stream, aim.subject); found || err != nil {
			became = succeeded // even what is no event takes the place of a plan
			m.Errorf("%s: %s wrote %s", row, aim.by.name, aim.subject)
		}
		m.count(row, became)
	}
}

// listens tries to hear what is told to others.
func (m *matrix) listens() {
	const row = "listens to what is told to others"
	for _, by := range m.attackers {
		subjects := []string{
			">", "*", "reknit.>", "_INBOX.>", "_INBOX.*.*", "_INBOX." + m.key("n2") + ".>", "_INBOX." + m.key("monitor") + "x.>", "$SYS.>", "$JS.>",
			"$KV.>", "$O.>", "$KV.REKNIT_SNAPSHOTS_opticks.>", "_R_.>", "$JS.API.>", "reknit.js.>", events.ProbeSubject(cluster, m.key("n2")),
			events.ProbeSubject(cluster, "*"), events.RelaySubject(cluster, ">", ""), events.RelaySubject(cluster, "*", by.key),
			events.LeaseSubject(cluster, "*", ""), events.PolicySubject(cluster, "x"), events.EventSubject(cluster, events.JoinRequested, "*"),
			events.EventSubject("another", events.NegotiationOpened, "*"), "reknit.plan.>",
		}
		if by.isNode() {
			subjects = append(subjects, events.PulseSubject(cluster, "*"), events.EventSubject(cluster, events.MembershipRefused, m.key("n2")))
		}
		for _, speaker := range []string{"", "*", by.key} {
			subjects = append(subjects, toNode(m.key("n2"), speaker)...)
		}
		for _, service := range []string{"monitor", "negotiator", "planner", "restorer"} {
			if service != by.name {
				subjects = append(subjects, events.LeaseSubject(cluster, service, ""), events.LeaseSubject(cluster, service, "*"),
					"_INBOX."+m.key(service)+".>")
			}
		}
		for _, subject := range subjects {
			if m.made++; !*full && m.made%stride != 0 {
				continue
			}
			became := byServer
			if by.hears(subject) {
				became = succeeded
				m.Errorf("%s: %s hears %s", row, by.name, subject)
			}
			m.count(row, became)
		}
	}
}
