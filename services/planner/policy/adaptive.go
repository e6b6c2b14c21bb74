package policy

// Adaptive weighs rerouting, planning anew (Chameleon IV-A), and waiting for the lost nodes: the default.
var Adaptive = Policy{Name: "adaptive", Propose: adaptive, Waits: true}

// weighed are the policies that adaptive weighs.
var weighed = []Policy{
	{Name: rerouting, Propose: reroute},
	anew,
}

// adaptive proposes what all weighed policies propose, each in its own name.
func adaptive(s Situation) (all []Candidate, err error) {
	var reasons []error
	for _, policy := range weighed {
		candidates, err := policy.named(s)
		all = append(all, candidates...)
		reasons = append(reasons, err)
	}
	if len(all) == 0 {
		return nil, joined(reasons...)
	}
	return all, nil
}
