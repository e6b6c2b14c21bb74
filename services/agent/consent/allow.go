package consent

import (
	"fmt"
	"slices"
	"strings"
)

// allowed objects to who is not listed, and whose site, or institution where that is proven, is not.
func allowed(p Policy, question Question) string {
	if p.Allow == "" {
		return ""
	}
	list := p.allows()
	for _, node := range question.Joining {
		of := node.Site
		if node.Proven {
			of = node.Institution
		}
		if !slices.Contains(list, node.Name) && (of == "" || !slices.Contains(list, of)) {
			return refusal(node)
		}
	}
	return ""
}

func refusal(node Node) string {
	switch {
	case node.Proven && node.Institution == "":
		return fmt.Sprintf("%s, which no institution lists, may not join", node.Name)
	case node.Proven:
		return fmt.Sprintf("neither %s nor its institution %q may join", node.Name, node.Institution)
	case node.Site == "":
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
