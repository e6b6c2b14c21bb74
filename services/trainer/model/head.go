package model

// predict computes the loss of the softmax over the vocabulary, and leaves in errors
// the gradient of that loss by the logits: probability minus target, over the window.
func (l *Layer) predict(a *Activations) {
	s := l.Shape
	weights, bias := s.cutHead(l.Parameters)
	setRows(a.errors, bias)
	multiplyAdd(a.errors, a.normalised, weights, s.Window, s.Width, s.Vocabulary)
	loss := 0.0
	for position, target := range a.sample.Targets {
		loss += softmax(a.errors[position*s.Vocabulary:(position+1)*s.Vocabulary], int(target), float64(s.Window))
	}
	a.Loss = float32(loss / float64(s.Window))
}

// softmax replaces the logits by (probability - target) / divisor and returns the
// cross-entropy. The largest logit is subtracted first, so no exponential overflows.
func softmax(logits []float32, target int, divisor float64) float64 {
	largest := logits[0]
	for _, logit := range logits {
		largest = max(largest, logit)
	}
	surprise := float64(largest) - float64(logits[target])
	sum := 0.0
	for i, logit := range logits {
		weight := exponential(float64(logit) - float64(largest))
		logits[i] = float32(weight)
		sum += weight
	}
	scale := 1 / float64(sum*divisor)
	for i, weight := range logits {
		logits[i] = float32(float64(weight) * scale)
	}
	logits[target] -= float32(1 / divisor)
	return surprise + logarithm(sum)
}

func (l *Layer) predictBackward(a *Activations, parameterGradient []float32) {
	s := l.Shape
	weights, _ := s.cutHead(l.Parameters)
	weightsGradient, biasGradient := s.cutHead(parameterGradient)
	addRows(biasGradient, a.errors)
	multiplyLeftTransposedAdd(weightsGradient, a.normalised, a.errors, s.Window, s.Width, s.Vocabulary)
	multiplyRightTransposed(a.inputGradient, a.errors, weights, s.Window, s.Vocabulary, s.Width)
	normaliseBackward(a.inputGradient, a.normalised, a.inverseScale, s.Width)
}

// cutHead cuts the head's parameters, or their gradient, into its tensors.
func (s Shape) cutHead(values []float32) (weights, bias []float32) {
	return values[:s.Width*s.Vocabulary], values[s.Width*s.Vocabulary:]
}
