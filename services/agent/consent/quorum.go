package consent

import "fmt"

// quorate objects where too few sites take part. Nodes that name none count as one site.
func quorate(p Policy, question Question) string {
	if p.Sites == 0 {
		return ""
	}
	sites := map[string]bool{}
	for _, node := range question.Members {
		sites[node.Site] = true
	}
	if len(sites) >= p.Sites {
		return ""
	}
	return fmt.Sprintf("%d sites take part, and %d must", len(sites), p.Sites)
}
