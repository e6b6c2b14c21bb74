//go:build !linux

package agentd

import "github.com/reknit/reknit/services/agent/rest"

// usedBy is not known: only Linux tells what processes write.
func usedBy(int) (used rest.Used, stopped int, isKnown bool) { return rest.Used{}, 0, false }
