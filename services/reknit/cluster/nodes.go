package cluster

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// Tokens is what ids look like.
const Tokens = "1 to 64 characters of A-Z a-z 0-9 - _"

// CheckNodes checks ids, memory, speeds and sites, and that each node is listed once. O(nodes).
func (f *File) CheckNodes(d *Document) error {
	listed := make(map[string]bool, len(f.Nodes))
	for i, node := range f.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		switch {
		case !events.Token(node.Node):
			return d.Fault(at+".node", Tokens, fmt.Sprintf("%.80q", node.Node))
		case listed[node.Node]:
			return d.Fault(at+".node", "each node once", node.Node)
		case node.Memory < 1:
			return d.Fault(at+".memory", "more than 0", tell.Bytes(int64(node.Memory)))
		case node.Speed != nil && !(*node.Speed >= 1e-9 && *node.Speed <= 1e9): // as of node.profiled
			return d.Fault(at+".speed", "a number of 1e-9 to 1e9", *node.Speed)
		case node.Site != "" && !events.Token(node.Site):
			return d.Fault(at+".site", Tokens, fmt.Sprintf("%.80q", node.Site))
		}
		listed[node.Node] = true
	}
	return nil
}

// Known checks that a field names a node of the file.
func (f *File) Known(d *Document, field, node string) error {
	if slices.ContainsFunc(f.Nodes, func(known Node) bool { return known.Node == node }) {
		return nil
	}
	return d.Fault(field, "one of the cluster's nodes", fmt.Sprintf("%.80q", node))
}
