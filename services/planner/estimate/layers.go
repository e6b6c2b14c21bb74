package estimate

// Layer is the profile of one layer: what one micro-batch costs on it, and what it keeps in memory.
type Layer struct {
	ForwardSeconds  float64
	BackwardSeconds float64
	StaticBytes     int64 // parameters, optimizer state and gradients
	ActivationBytes int64 // kept per micro-batch between its forward and its backward
}

// Range is a half-open interval [First, End), of layers unless said otherwise.
type Range struct{ First, End int }

// Len is the number of layers in the range.
func (r Range) Len() int { return r.End - r.First }

// Shared is the number of layers that both ranges hold.
func (r Range) Shared(other Range) int {
	return max(0, min(r.End, other.End)-max(r.First, other.First))
}

// Member is one pipeline of a plan whose pipelines may differ in length, split and share of the batch.
type Member struct {
	MicroBatches int
	Stages       []Range
}

// OfLayers is the pipeline whose stage s holds layers[stages[s].First:stages[s].End], with the same transfer time on
// every edge and in both directions. O(layers).
func OfLayers(layers []Layer, stages []Range, microBatches int, transferSeconds float64) Pipeline {
	p := Pipeline{
		MicroBatches:    microBatches,
		ForwardSeconds:  make([]float64, len(stages)),
		BackwardSeconds: make([]float64, len(stages)),
	}
	for s, stage := range stages {
		for _, layer := range layers[stage.First:stage.End] {
			p.ForwardSeconds[s] += layer.ForwardSeconds
			p.BackwardSeconds[s] += layer.BackwardSeconds
		}
	}
	if transferSeconds > 0 {
		p.ForwardTransferSeconds = repeat(transferSeconds, len(stages)-1)
		p.BackwardTransferSeconds = p.ForwardTransferSeconds
	}
	return p
}

func repeat(value float64, times int) []float64 {
	values := make([]float64, times)
	for i := range values {
		values[i] = value
	}
	return values
}

// PeakBytes is what each stage of a 1F1B pipeline keeps at its peak: its layers' static bytes, and their activations
// for every micro-batch in flight (Chameleon IV-B; the limit to the micro-batches there are is exact for 1F1B).
func PeakBytes(layers []Layer, stages []Range, microBatches int) []int64 {
	peak := make([]int64, len(stages))
	for s, stage := range stages {
		inFlight := int64(InFlight(s, len(stages), microBatches))
		for _, layer := range layers[stage.First:stage.End] {
			peak[s] += layer.StaticBytes + layer.ActivationBytes*inFlight
		}
	}
	return peak
}
