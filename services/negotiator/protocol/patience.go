package protocol

const (
	// freeRestarts is how often a node may ask to join within RestartMemory seconds without waiting: at its start, and after one
	// failure. Whoever comes back more often is in a crash loop until it proves otherwise.
	freeRestarts = 2
	// RestartMemory is after how many seconds without a restart a node begins with a clean slate.
	RestartMemory = 600.0
	mostWait      = 300.0
	mostDoublings = 6
)

// RestartWait returns for how many seconds a node that asked to join so often must wait until its join is negotiated: each of its
// restarts stops the recovery of everybody else (fault: 100 restarts, one every 3 s, kept a cluster from ever training again).
func RestartWait(joins int) float64 {
	wait := 0.0
	for joins -= freeRestarts; joins > 0 && wait < mostWait; joins-- {
		wait = max(1, 2*wait)
	}
	return min(wait, mostWait)
}

// Grown returns a wait that doubles with each round in which nothing came of it, up to 64 times: who waits for long writes little.
func Grown(seconds float64, round int) float64 {
	return seconds * float64(int(1)<<min(round, mostDoublings))
}
