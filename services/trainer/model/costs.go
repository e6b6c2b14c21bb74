package model

// Costs is what one layer takes, in bytes and in floating point operations.
type Costs struct {
	ParameterBytes int64
	// OptimizerBytes are Adam's two moments.
	OptimizerBytes int64
	// GradientBytes are the fixed-point sums, which is also what an all-reduce moves.
	GradientBytes int64
	// ActivationBytes are kept per micro-batch between its forward and backward pass.
	ActivationBytes int64
	// OutputBytes pass to the next layer per micro-batch, and as many back.
	OutputBytes int64
	// ForwardOperations and BackwardOperations count the multiplications and additions
	// of the matrix products and of the embedding's sums per micro-batch; the rest is
	// linear in the activations and left out.
	ForwardOperations, BackwardOperations int64
}

// Costs returns what a layer of the shape takes: the sum over layers is the model's.
func (s Shape) Costs(layer int) Costs {
	parameters := int64(s.Parameters(layer))
	window := int64(s.Window)
	between := window * int64(s.Width)
	costs := Costs{ParameterBytes: 4 * parameters, OptimizerBytes: 8 * parameters, GradientBytes: 8 * parameters}
	switch {
	case s.isEmbedding(layer):
		costs.ActivationBytes = 4 * between
		costs.OutputBytes = 4 * between
		costs.ForwardOperations = between * int64(s.Context)
		costs.BackwardOperations = costs.ForwardOperations
	case s.isHead(layer):
		costs.ActivationBytes = 4 * (2*between + window + window*int64(s.Vocabulary))
		costs.ForwardOperations = 2 * between * int64(s.Vocabulary)
		costs.BackwardOperations = 2 * costs.ForwardOperations
	default:
		costs.ActivationBytes = 4 * (3*between + window + window*int64(s.Hidden))
		costs.OutputBytes = 4 * between
		costs.ForwardOperations = 4 * between * int64(s.Hidden)
		costs.BackwardOperations = 2 * costs.ForwardOperations
	}
	return costs
}
