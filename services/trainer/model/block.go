package model

// transform adds to the input a rectified hidden layer of the normalised input:
// output = input + relu(normalised x first + firstBias) x second + secondBias.
func (l *Layer) transform(input []float32, a *Activations) {
	s := l.Shape
	first, firstBias, second, secondBias := s.cutBlock(l.Parameters)
	setRows(a.hidden, firstBias)
	multiplyAdd(a.hidden, a.normalised, first, s.Window, s.Width, s.Hidden)
	for i, value := range a.hidden {
		a.hidden[i] = max(value, 0)
	}
	setRows(a.output, secondBias)
	multiplyAdd(a.output, a.hidden, second, s.Window, s.Hidden, s.Width)
	add(a.output, input)
}

func (l *Layer) transformBackward(a *Activations, outputGradient, parameterGradient, hiddenGradient []float32) {
	s := l.Shape
	first, _, second, _ := s.cutBlock(l.Parameters)
	firstGradient, firstBiasGradient, secondGradient, secondBiasGradient := s.cutBlock(parameterGradient)

	addRows(secondBiasGradient, outputGradient)
	multiplyLeftTransposedAdd(secondGradient, a.hidden, outputGradient, s.Window, s.Hidden, s.Width)
	multiplyRightTransposed(hiddenGradient, outputGradient, second, s.Window, s.Width, s.Hidden)
	for i, value := range a.hidden {
		if value <= 0 {
			hiddenGradient[i] = 0
		}
	}
	addRows(firstBiasGradient, hiddenGradient)
	multiplyLeftTransposedAdd(firstGradient, a.normalised, hiddenGradient, s.Window, s.Width, s.Hidden)
	multiplyRightTransposed(a.inputGradient, hiddenGradient, first, s.Window, s.Hidden, s.Width)
	normaliseBackward(a.inputGradient, a.normalised, a.inverseScale, s.Width)
	add(a.inputGradient, outputGradient)
}

// cutBlock cuts a block's parameters, or their gradient, into its tensors.
func (s Shape) cutBlock(values []float32) (first, firstBias, second, secondBias []float32) {
	matrix := s.Width * s.Hidden
	first, values = values[:matrix], values[matrix:]
	firstBias, values = values[:s.Hidden], values[s.Hidden:]
	return first, firstBias, values[:matrix], values[matrix:]
}
