package permission

import (
	"fmt"
	"slices"
	"strings"
)

// someone stands for the id of a node of a site.
const someone = "{{node}}"

// OfLeaf returns the rights of a site's server, through which the nodes of the site speak: those of these nodes. The operator of such a
// server can hold back and repeat what is said there, and can send heartbeats in their names. Heartbeats bear no signature. Probes
// that nodes send stay within the site: a probe has a node dial any address.
//
// All of it stands in one token, so a node must take few bytes: its subjects are folded, with its id in its place. Subjects that a
// pattern has beside those of nodes are signed by services, and stay in the nodes' account; those of persons cross, and are denied.
func OfLeaf(nodes []string, cluster string) Rights {
	if len(nodes) == 0 {
		return Rights{}
	}
	of := OfNode(someone, cluster, "_INBOX."+someone)
	isProbe := func(subject string) bool { return slices.Contains(probes(cluster, someone), subject) }
	return Rights{
		Publish:   ofEach(nodes, slices.DeleteFunc(of.Publish, isProbe)),
		Subscribe: ofEach(nodes, of.Subscribe),
		Deny:      ofPersons(cluster),
	}
}

// ofEach returns subjects of someone as they are for each of the nodes, and once those that are the same for all.
func ofEach(nodes, subjects []string) []string {
	own, shared := fold(subjects)
	all := shared
	for _, node := range nodes {
		for _, subject := range own {
			all = append(all, strings.ReplaceAll(subject, someone, node))
		}
	}
	return all
}

// fold makes one pattern of all subjects that are equally long and have someone's id in the same place: a token in which they differ
// becomes "*". The shared subjects have no id in them.
func fold(subjects []string) (own, shared []string) {
	folded := map[string][]string{}
	for _, subject := range subjects {
		if !strings.Contains(subject, someone) {
			shared = append(shared, subject)
			continue
		}
		tokens := strings.Split(subject, ".")
		place := slices.IndexFunc(tokens, func(token string) bool { return strings.Contains(token, someone) })
		like := fmt.Sprint(len(tokens), " ", place, " ", tokens[place], " ", tokens[len(tokens)-1] == ">")
		before, isKnown := folded[like]
		if !isKnown {
			folded[like] = tokens
			continue
		}
		for n := range before {
			if before[n] != tokens[n] {
				before[n] = "*"
			}
		}
	}
	for _, tokens := range folded {
		own = append(own, strings.Join(tokens, "."))
	}
	slices.Sort(own)
	return own, shared
}

// ofPersons lists what leads into the control account from persons, and from no node.
func ofPersons(cluster string) []string {
	isNodes := func(subject string) bool { return slices.Contains(said(Node, cluster, "*"), subject) }
	return join(slices.DeleteFunc(said(User, cluster, ""), isNodes), asksServices(cluster, "*"))
}
