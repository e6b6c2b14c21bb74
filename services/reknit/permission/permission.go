// Package permission says what who connects may publish and hear. It follows from the catalogue: who says a row may
// publish its subject, and nobody else may.
//
// Services and streams are in one account of the broker, the control account; the nodes of all institutions, and users, are in another. The
// server's own answers are the reason: an acknowledgement, or the message that a read returns, goes to whatever subject the asker names for
// the reply, whether or not he may publish there. In one account a node that may put an object and read it back could store it as a plan
// (seen with nats-server 2.15.2). A node's request is answered in the nodes' account, and no stream listens there.
package permission

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// API is the prefix of the JetStream API in the nodes' account. Under the usual one the server itself would answer, that
// the account has none.
const API = "reknit.js"

const controlAPI = "$JS.API"

// User is the role of a person, who asks for what the catalogue lets users ask for, and reads.
const User = "user"

// Services are the roles of the control account.
var Services = []string{"monitor", "negotiator", "planner", "restorer"}

// Node is the role of a node, speaking for itself.
const Node = "node"

// Rights are what a connection may publish and subscribe to. It may also answer each request that it hears.
type Rights struct {
	Publish, Subscribe []string
	Deny               []string // what it may not publish, though a pattern of Publish has it
}

// OfUser returns the rights of a person, whose inbox is below the one given, and whose consumers have this name.
func OfUser(consumer, cluster, inbox string) Rights {
	return Rights{
		Publish: join(said(User, cluster, "*"), looks(API, cluster), readsLog(API, cluster, consumer),
			readsObjects(API, cluster), asksServices(cluster, consumer)),
		Subscribe: []string{inbox + ".>", events.PulseSubject(cluster, "*")},
	}
}

// OfService returns the rights of a service, which has this id, and whose inbox is below the one given.
func OfService(name, id, cluster, inbox string) Rights {
	rights := Rights{
		Publish: join(said(name, cluster, "*"), looks(controlAPI, cluster), readsLog(controlAPI, cluster, "*"),
			readsObjects(controlAPI, cluster), runs(name, id, cluster), writesObjects(cluster, events.PayloadBucket, events.PlanPayloadBucket)),
		Subscribe: []string{inbox + ".>", events.LeaseSubject(cluster, name, "*")},
	}
	switch name {
	case "monitor":
		rights.Publish = append(rights.Publish, events.ProbeSubject(cluster, "*"))
		rights.Subscribe = append(rights.Subscribe, events.PulseSubject(cluster, "*"))
		// It drops what one says who fills the log.
		rights.Publish = append(rights.Publish, controlAPI+".STREAM.PURGE."+events.Lane(cluster, events.EventStream.Name))
	case "negotiator": // it drops old plans
		rights.Publish = append(rights.Publish, controlAPI+".STREAM.PURGE."+events.Lane(cluster, events.PlanStream.Name),
			controlAPI+".STREAM.PURGE.OBJ_"+events.Lane(cluster, events.PlanPayloadBucket))
	case "planner":
		rights.Publish = append(rights.Publish, events.PolicySubject(cluster, "*"))
	}
	return rights
}

// OfKeeper returns the rights of whoever mends streams that are full, and removes consumers, whose inbox is below the one given.
func OfKeeper(cluster, inbox string) Rights {
	rights := Rights{
		Publish:   []string{controlAPI + ".INFO", controlAPI + ".STREAM.NAMES", controlAPI + ".STREAM.LIST"},
		Subscribe: []string{inbox + ".>"},
	}
	for _, stream := range streams(cluster) {
		for _, verb := range []string{
			"STREAM.INFO.%s", "STREAM.UPDATE.%s", "STREAM.PURGE.%s", "CONSUMER.NAMES.%s", "CONSUMER.LIST.%s", "CONSUMER.INFO.%s.*",
			"CONSUMER.DELETE.%s.*",
		} {
			rights.Publish = append(rights.Publish, controlAPI+"."+fmt.Sprintf(verb, stream))
		}
	}
	return rights
}

// OfNode returns the rights of a node of the nodes' account, whose inbox is below the one given. The id may be a
// template that the server fills in.
func OfNode(id, cluster, inbox string) Rights {
	return Rights{
		Publish: join(said(Node, cluster, id), []string{events.PulseSubject(cluster, id)}, probes(cluster, id), asksNodes(cluster, "*", id),
			looks(API, cluster), readsLog(API, cluster, id), readsObjects(API, cluster),
			writesObjects(cluster, events.PayloadBucket, events.ShardBucket), meets(cluster), missing(cluster)),
		Subscribe: join([]string{inbox + ".>"}, heard(cluster, id), asksNodes(cluster, id, "*"), probes(cluster, id)),
	}
}

// said lists the subjects of what a speaker says. A node's all have its id, and those of services about services their name.
func said(speaker, cluster, id string) []string {
	var subjects []string
	for _, row := range events.Catalogue {
		if !slices.Contains(row.SaidBy, speaker) {
			continue
		}
		subject := "*"
		switch about := row.Kind.About(); {
		case about == events.AboutService:
			subject = speaker
		case speaker == Node && about != events.AboutUnit: // a link, too, that it asks for
			subject = id
		}
		subjects = append(subjects, events.Event{Kind: row.Kind, Cluster: cluster, Subject: subject}.SubjectBy(id))
	}
	return subjects
}

// heard lists what a node may hear without a consumer: what is not said by nodes of themselves, refusals of itself only.
func heard(cluster, id string) []string {
	var subjects []string
	for _, row := range events.Catalogue {
		switch {
		case row.Kind == events.MembershipRefused:
			subjects = append(subjects, events.EventSubject(cluster, row.Kind, id))
		case row.Plan || row.Kind == events.ShardOffered || !slices.Contains(row.SaidBy, Node):
			subjects = append(subjects, events.Event{Kind: row.Kind, Cluster: cluster, Subject: "*"}.SubjectBy("*"))
		}
	}
	return subjects
}

// asksNodes lists what nodes ask one another, each in its own name.
func asksNodes(cluster, id, speaker string) []string {
	return []string{
		events.ShardSubject(cluster, id, speaker), events.PreCopySubject(cluster, id, speaker), events.KeepSubject(cluster, id, speaker),
		events.RelaySubject(cluster, id, speaker),
	}
}

// asksServices lists on what a person asks each service whether it works.
func asksServices(cluster, speaker string) []string {
	var subjects []string
	for _, service := range Services {
		subjects = append(subjects, events.LeaseSubject(cluster, service, speaker))
	}
	return subjects
}

// probes is where a node is asked whether it lives, and asks itself whether another process has its name.
func probes(cluster, id string) []string { return []string{events.ProbeSubject(cluster, id)} }

// readsLog lists what it takes to read a cluster's streams, by consumers whose names follow from this one; "*" is all.
func readsLog(api, cluster, consumer string) []string {
	names := []string{consumer}
	if consumer != "*" {
		names = events.Readers(consumer)
	}
	var subjects []string
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		lane := events.Lane(cluster, stream.Name)
		subjects = append(subjects, api+".STREAM.MSG.GET."+lane)
		for _, name := range names {
			of := lane + "." + name
			subjects = append(subjects, api+".CONSUMER.CREATE."+of, api+".CONSUMER.INFO."+of, api+".CONSUMER.DELETE."+of,
				api+".CONSUMER.MSG.NEXT."+of)
		}
	}
	return subjects
}

// readsObjects lists what it takes to read a cluster's object stores. They are read without a consumer.
func readsObjects(api, cluster string) []string {
	var subjects []string
	for _, store := range events.ObjectStores {
		stream := "OBJ_" + events.Lane(cluster, store.Bucket)
		subjects = append(subjects, api+".DIRECT.GET."+stream, api+".DIRECT.GET."+stream+".>")
	}
	return subjects
}

func writesObjects(cluster string, buckets ...string) []string {
	var subjects []string
	for _, bucket := range buckets {
		subjects = append(subjects, "$O."+events.Lane(cluster, bucket)+".>")
	}
	return subjects
}

// meets lists what it takes to use the rendezvous of a cluster, which is read without a consumer: a kit could make as many as the server
// has room for. The library puts the API's prefix before a key.
func meets(cluster string) []string {
	lane := events.Lane(cluster, events.RendezvousBucket)
	stream := "KV_" + lane
	return []string{API + ".DIRECT.GET." + stream + ".>", API + ".$KV." + lane + "." + cluster + ".>"}
}

// missing lists what a receiver asks a neighbour's shard store, and the hub's, which has nobody for it and says so at
// once: what is forbidden is never answered.
func missing(cluster string) []string {
	lane := events.Lane(cluster, events.ShardBucket)
	return []string{"shards.warm." + lane, "shards.lent." + lane}
}

// runs lists what shared/service does: streams that are missing are made, though never altered; the log is read by
// consumers that each instance names itself; the memory is its own.
func runs(service, id, cluster string) []string {
	log, memory := events.Lane(cluster, events.EventStream.Name), events.Lane(cluster, events.SnapshotBucket)
	subjects := []string{
		events.LeaseSubject(cluster, service, id),
		"$JS.ACK." + log + ".>",
		controlAPI + ".CONSUMER.RESET." + log + ".*",
		controlAPI + ".DIRECT.GET.KV_" + memory + ".$KV." + memory + "." + cluster + "." + service,
		"$KV." + memory + "." + cluster + "." + service,
	}
	for _, stream := range streams(cluster) {
		subjects = append(subjects, controlAPI+".STREAM.CREATE."+stream)
	}
	return subjects
}

// looks lists what it takes to see whether the streams are there, and how full.
func looks(api, cluster string) []string {
	var subjects []string
	for _, stream := range streams(cluster) {
		subjects = append(subjects, api+".STREAM.INFO."+stream)
	}
	return subjects
}

func streams(cluster string) []string {
	names := []string{events.Lane(cluster, events.EventStream.Name), events.Lane(cluster, events.PlanStream.Name)}
	for _, bucket := range events.KeyValues {
		names = append(names, "KV_"+events.Lane(cluster, bucket.Bucket))
	}
	for _, store := range events.ObjectStores {
		names = append(names, "OBJ_"+events.Lane(cluster, store.Bucket))
	}
	return names
}

func join(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
