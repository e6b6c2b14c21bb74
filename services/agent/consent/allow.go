package consent

import (
	"fmt"
	"slices"
	"strings"
)

// allowed objects to who is not listed, and whose site is not.
func allowed(p Policy, question Question) string {
	if p.Allow == "" {
		return ""
	}
	list := p.allows()
	for _, node := range question.Joining {
		if !slices.Contains(list, node.Name) && (node.Site == "" || !slices.Contains(list, node.Site)) {
			return refusal(node)
		}
	}
	return ""
}

func refusal(node Node) string {
	if node.Site == "" {
		return fmt.Sprintf("%s, which names no site, may not join", node.Name)
	}
	return fmt.Sprintf("neither %s nor its site %q may join", node.Name, node.Site)
}

// allows are the nodes and sites of the policy.
func (p Policy) allows() (list []string) {
	for name := range strings.SplitSeq(p.Allow, ",") {
		list = append(list, strings.TrimSpace(name))
	}
	return list
}
