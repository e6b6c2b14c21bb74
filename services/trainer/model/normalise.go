package model

import "math"

// normaliseEpsilon keeps an all-zero row finite.
const normaliseEpsilon = 1e-6

// normalise divides each row of width numbers by its root mean square (Zhang and
// Sennrich 2019, equation 4, without the gain: the matrix that follows has it), and
// keeps the inverse of what it divided by.
func normalise(output, inverseScale, input []float32, width int) {
	for row := range inverseScale {
		in := input[row*width : (row+1)*width]
		out := output[row*width : (row+1)*width]
		squares := 0.0
		for _, x := range in {
			squares += float64(float64(x) * float64(x))
		}
		scale := float32(1 / math.Sqrt(squares/float64(width)+normaliseEpsilon))
		inverseScale[row] = scale
		for i, x := range in {
			out[i] = float32(x * scale)
		}
	}
}

// normaliseBackward turns the gradient by the normalised rows y into the gradient by
// the rows themselves: dx = (dy - y * mean(dy * y)) * inverseScale.
func normaliseBackward(gradient, normalised, inverseScale []float32, width int) {
	for row, scale := range inverseScale {
		dy := gradient[row*width : (row+1)*width]
		y := normalised[row*width : (row+1)*width]
		product := 0.0
		for i, d := range dy {
			product += float64(float64(d) * float64(y[i]))
		}
		mean := float32(product / float64(width))
		for i, d := range dy {
			dy[i] = float32((d - float32(y[i]*mean)) * scale)
		}
	}
}
