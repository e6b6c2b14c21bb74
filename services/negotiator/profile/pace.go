package profile

// Pace is what a node told of the steps of a plan.
type Pace struct {
	StepSeconds   float64 `json:"stepSeconds"`             // last told
	PassSeconds   float64 `json:"passSeconds,omitempty"`   // that its passes took of them; zero: not told
	BesideSeconds float64 `json:"besideSeconds,omitempty"` // the least that a step took beyond passes under the plan
}

// Paces are what nodes told of one plan. Plain data.
type Paces map[string]Pace

// Take notes how long a step takes at a node, and its passes of that.
func (p Paces) Take(node string, step, passes float64) {
	beside := max(0, step-passes)
	if before, told := p[node]; told {
		beside = min(beside, before.BesideSeconds)
	}
	p[node] = Pace{StepSeconds: step, PassSeconds: passes, BesideSeconds: beside}
}

// StepSeconds is how long a step takes, and how long one takes in which passes take what they take now, and the rest its least under
// the plan: medians of those that told; zero: nobody did. O(nodes log nodes).
func (p Paces) StepSeconds() (last, least float64) {
	var lasts, leasts []float64
	for _, pace := range p {
		lasts = append(lasts, pace.StepSeconds)
		leasts = append(leasts, min(pace.StepSeconds, pace.PassSeconds+pace.BesideSeconds))
	}
	return Median(lasts), Median(leasts)
}

// Passes are the seconds of a step that passes take, of the nodes that told.
func (p Paces) Passes() map[string]float64 {
	passes := make(map[string]float64, len(p))
	for node, pace := range p {
		if pace.PassSeconds > 0 {
			passes[node] = pace.PassSeconds
		}
	}
	return passes
}
