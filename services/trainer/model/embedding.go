package model

// embed writes for each position the sum of the vectors of the characters it sees.
// Each place in the context has vectors of its own, so the order of characters counts.
func (l *Layer) embed(a *Activations) {
	width := l.Shape.Width
	clear(a.output)
	for position := range l.Shape.Window {
		output := a.output[position*width : (position+1)*width]
		for place, character := range a.sample.Characters[position : position+l.Shape.Context] {
			add(output, l.Parameters[l.vector(place, character):])
		}
	}
}

func (l *Layer) embedBackward(a *Activations, outputGradient, parameterGradient []float32) {
	width := l.Shape.Width
	for position := range l.Shape.Window {
		output := outputGradient[position*width : (position+1)*width]
		for place, character := range a.sample.Characters[position : position+l.Shape.Context] {
			first := l.vector(place, character)
			add(parameterGradient[first:first+width], output)
		}
	}
}

// vector is where the vector of a character at a place of the context begins.
func (l *Layer) vector(place int, character byte) int {
	return (place*l.Shape.Vocabulary + int(character)) * l.Shape.Width
}
