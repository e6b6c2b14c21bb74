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

// Returns estimates how long a lost node stays away. Nodes that have not come back count with the time they have been
// away so far, so that a few quick returns do not promise that of all: seconds away over returns is the likeliest mean
// of an exponential time, of which some samples are not over.
type Returns struct {
	Returned int                `json:"returned"`
	Seconds  float64            `json:"seconds"`        // node-seconds away
	Away     map[string]float64 `json:"away,omitempty"` // seconds so far, of the lost nodes that may come back
}

// mostAwaySeconds is after how long a node counts as gone for good: what would come of it then is a new node.
const mostAwaySeconds = 3600

// Lost notes that a node is away.
func (r *Returns) Lost(node string) {
	if r.Away == nil {
		r.Away = map[string]float64{}
	}
	r.Away[node] = 0
}

// Came notes that a node is there; it need not have been away.
func (r *Returns) Came(node string) {
	if _, away := r.Away[node]; away {
		r.Returned++
		delete(r.Away, node)
	}
}

// Pass lets time go by.
func (r *Returns) Pass(seconds float64) {
	for node := range r.Away {
		r.Seconds += seconds
		if r.Away[node] += seconds; r.Away[node] > mostAwaySeconds {
			delete(r.Away, node)
		}
	}
}

// MeanSeconds is the expected time until a lost node is back; zero where none came back yet.
func (r *Returns) MeanSeconds() float64 {
	if r.Returned == 0 {
		return 0
	}
	return r.Seconds / float64(r.Returned)
}
