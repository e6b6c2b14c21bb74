package permission

import (
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// Crossing is a subject that leads from one account into the other.
type Crossing struct {
	Subject string // in the account that it leads out of, which exports it
	Local   string // in the account that imports it
	Service bool   // the importer asks, and the exporter answers; else the exporter says, and the importer hears
	Many    bool   // an answer may be several messages
}

// OfControl lists what the control account exports and the nodes' imports: all that some node may publish, but to other
// nodes, all that a person says, what nodes hear, and what a person asks services.
func OfControl(cluster string) []Crossing {
	var crossings []Crossing
	rights := OfNode("*", cluster, "")
	for _, local := range slices.Concat(rights.Publish, ofPersons(cluster)) {
		if stays(cluster, local) {
			continue
		}
		subject := inControl(local)
		many := strings.Contains(subject, ".MSG.NEXT.") || strings.Contains(subject, ".DIRECT.GET.")
		crossings = append(crossings, Crossing{Subject: subject, Local: local, Service: true, Many: many})
	}
	for _, subject := range heard(cluster, "*") {
		crossings = append(crossings, Crossing{Subject: subject, Local: subject})
	}
	return crossings
}

// OfNodes lists what the nodes' account exports and the control account imports.
func OfNodes(cluster string) []Crossing {
	pulses := events.PulseSubject(cluster, "*")
	crossings := []Crossing{{Subject: pulses, Local: pulses}}
	for _, subject := range probes(cluster, "*") {
		crossings = append(crossings, Crossing{Subject: subject, Local: subject, Service: true})
	}
	return crossings
}

// stays reports whether what a node publishes is for nodes, or for whoever imports it.
func stays(cluster, subject string) bool {
	return subject == events.PulseSubject(cluster, "*") || slices.Contains(asksNodes(cluster, "*", "*"), subject) ||
		slices.Contains(probes(cluster, "*"), subject) || slices.Contains(missing(cluster), subject)
}

// inControl returns what a subject of the nodes' account is in the control account.
func inControl(local string) string {
	if key, isKey := strings.CutPrefix(local, API+".$KV."); isKey {
		return "$KV." + key
	}
	if rest, isAPI := strings.CutPrefix(local, API+"."); isAPI {
		return controlAPI + "." + rest
	}
	return local
}
