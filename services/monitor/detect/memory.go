package detect

// Memory is what a detector knows beside its nodes that another may go on with.
type Memory struct {
	StallSeconds float64            `json:"stallSeconds,omitempty"` // that the longest stall which ended by itself still counts for
	Stalls       float64            `json:"stalls,omitempty"`       // that ended so, as far as they still count
	Sites        map[string]float64 `json:"sites,omitempty"`        // those suspected, and seconds of their silence since then
}

// Memory returns what another detector may go on with.
func (d *Detector) Memory() Memory {
	memory := Memory{StallSeconds: d.stall, Stalls: d.stalls}
	for name, s := range d.sites {
		if s.suspected {
			if memory.Sites == nil {
				memory.Sites = map[string]float64{}
			}
			memory.Sites[name] = s.excused
		}
	}
	return memory
}
