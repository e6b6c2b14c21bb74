package detect

// Rate estimates how often a node fails: failures over node-seconds, with a prior of one failure in PriorSeconds, which
// is the mean of the Gamma posterior of a Poisson process. Without the prior the first failure would look like the
// end of the world, and none like eternity.
type Rate struct {
	PriorSeconds float64 `json:"priorSeconds"` // node-seconds in which one failure is expected before any was seen
	Failures     int     `json:"failures"`
	Seconds      float64 `json:"seconds"` // node-seconds watched
}

// PerNodeSecond returns the expected failures of one node in one second.
func (r Rate) PerNodeSecond() float64 {
	return (1 + float64(r.Failures)) / (r.PriorSeconds + r.Seconds)
}
