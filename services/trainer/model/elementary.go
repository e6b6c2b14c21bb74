package model

import "math"

// ln2High and ln2Low sum to ln 2; k*ln2High is exact for the k met here (Cody and Waite
// 1980: the high part ends in enough zero bits).
const (
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
)

// exponential returns e^x for x <= 0, to about 1e-15 of it, and 0 below -700. It is the
// same bits on every processor, which math.Exp is not: its assembly fuses products
// where the processor can.
func exponential(x float64) float64 {
	if x < -700 {
		return 0
	}
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := (x - float64(k*ln2High)) - float64(k*ln2Low)
	// Horner's scheme of the Taylor series; |r| <= 0.35, so the 14th term is below 1e-17.
	sum := 1.0
	for n := 13.0; n >= 1; n-- {
		sum = 1 + float64(sum*r)/n
	}
	return math.Float64frombits(math.Float64bits(sum) + uint64(int64(k))<<52)
}

// logarithm returns ln x for a normal x > 0, to about 1e-15, the same bits on every
// processor.
func logarithm(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction *= 2
		exponent--
	}
	// ln f = 2 artanh(s) with s = (f-1)/(f+1); |s| <= 0.172, so the term in s^23 is below 1e-18.
	s := (fraction - 1) / (fraction + 1)
	square := float64(s * s)
	sum := 0.0
	for n := 21.0; n >= 1; n -= 2 {
		sum = float64(sum*square) + 1/n
	}
	k := float64(exponent)
	return float64(k*ln2High) + (float64(2*s*sum) + float64(k*ln2Low))
}
