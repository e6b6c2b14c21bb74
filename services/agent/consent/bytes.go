package consent

import "fmt"

// bounded objects where the node may have to give more than it wants to.
func bounded(p Policy, question Question) string {
	if p.Bytes == 0 || question.Bytes <= p.Bytes {
		return ""
	}
	return fmt.Sprintf("it may have to give %d bytes, and gives at most %d", question.Bytes, p.Bytes)
}
