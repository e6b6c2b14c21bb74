package main

import (
	"slices"

	"github.com/reknit/reknit/tests/simulation/world"
)

// shrink leaves out faults, first half of them at a time and then one by one, as long as something still goes wrong.
func shrink(script world.Script) world.Script {
	if mended := script; script.Stays != "" {
		mended.Stays = ""
		if len(playTwice(mended).Violations) > 0 {
			script = mended
		}
	}
	for size := max(len(script.Faults)/2, 1); ; {
		smaller, found := without(script, size)
		switch {
		case found:
			script = smaller
		case size > 1:
			size /= 2
		default:
			return script
		}
	}
}

// without returns the script less some faults in a row that it fails without, too.
func without(script world.Script, size int) (world.Script, bool) {
	for first := 0; first+size <= len(script.Faults); first++ {
		smaller := script
		smaller.Faults = slices.Delete(slices.Clone(script.Faults), first, first+size)
		if len(playTwice(smaller).Violations) > 0 {
			return smaller, true
		}
	}
	return script, false
}
