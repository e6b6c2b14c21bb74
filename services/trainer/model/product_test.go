package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randomMatrix(random *rand.Rand, elements int) []float32 {
	values := make([]float32, elements)
	for i := range values {
		values[i] = float32(2*random.Float64() - 1)
	}
	return values
}

// textbook adds to c the sum over the inner index of a(row, inner) * b(inner, column).
func textbook(c []float32, rows, inner, columns int, a, b func(i, j int) float32) {
	for row := range rows {
		for column := range columns {
			for i := range inner {
				c[row*columns+column] += float32(a(row, i) * b(i, column))
			}
		}
	}
}

func TestTheProductsAreTheTextbooksBitForBit(t *testing.T) {
	byRows := func(m []float32, columns int) func(i, j int) float32 {
		return func(i, j int) float32 { return m[i*columns+j] }
	}
	byColumns := func(m []float32, rows int) func(i, j int) float32 {
		return func(i, j int) float32 { return m[j*rows+i] }
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		rows, inner, columns := 1+random.IntN(11), 1+random.IntN(11), 1+random.IntN(11)
		a, b := randomMatrix(random, rows*inner), randomMatrix(random, inner*columns)
		start := randomMatrix(random, rows*columns)

		got, want := slices.Clone(start), slices.Clone(start)
		multiplyAdd(got, a, b, rows, inner, columns)
		textbook(want, rows, inner, columns, byRows(a, inner), byRows(b, columns))
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: product is %v: expected %v", seed, got, want)
		}

		got, want = slices.Clone(start), slices.Clone(start)
		multiplyLeftTransposedAdd(got, a, b, inner, rows, columns)
		textbook(want, rows, inner, columns, byColumns(a, rows), byRows(b, columns))
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: left transposed product is %v: expected %v", seed, got, want)
		}

		got, want = slices.Clone(start), make([]float32, rows*columns)
		multiplyRightTransposed(got, a, b, rows, inner, columns)
		textbook(want, rows, inner, columns, byRows(a, inner), byColumns(b, inner))
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: right transposed product is %v: expected %v", seed, got, want)
		}
	}
}

func TestTheElementaryFunctionsAreMaths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	for range 100_000 {
		x := -700 * math.Pow(random.Float64(), 4)
		if got, want := exponential(x), math.Exp(x); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("exponential(%v) is %v: expected %v", x, got, want)
		}
		y := math.Exp2(40*random.Float64() - 20)
		if got, want := logarithm(y), math.Log(y); math.Abs(got-want) > 1e-15*(1+math.Abs(want)) {
			t.Fatalf("logarithm(%v) is %v: expected %v", y, got, want)
		}
	}
	for _, x := range []float64{-701, -1e9, math.Inf(-1)} {
		if got := exponential(x); got != 0 {
			t.Errorf("exponential(%v) is %v: expected 0", x, got)
		}
	}
	if exponential(0) != 1 || logarithm(1) != 0 {
		t.Errorf("exponential(0) is %v and logarithm(1) is %v: expected 1 and 0", exponential(0), logarithm(1))
	}
	if got := exponential(math.NaN()); !math.IsNaN(got) {
		t.Errorf("exponential of what is not a number is %v: expected the same", got)
	}
}

func BenchmarkProducts(b *testing.B) {
	const rows, inner, columns = 16, 64, 128
	random := rand.New(rand.NewPCG(1, 4))
	left, right := randomMatrix(random, rows*inner), randomMatrix(random, inner*columns)
	product := make([]float32, rows*columns)
	for name, multiply := range map[string]func(){
		"by rows":          func() { multiplyAdd(product, left, right, rows, inner, columns) },
		"left transposed":  func() { multiplyLeftTransposedAdd(right, left, product, rows, inner, columns) },
		"right transposed": func() { multiplyRightTransposed(left, product, right, rows, columns, inner) },
		"textbook": func() {
			for row := range rows {
				for column := range columns {
					sum := float32(0)
					for i := range inner {
						sum += float32(left[row*inner+i] * right[i*columns+column])
					}
					product[row*columns+column] = sum
				}
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				multiply()
			}
			b.ReportMetric(rows*inner*columns*float64(b.N)/b.Elapsed().Seconds()/1e9, "billion-multiply-adds/s")
		})
	}
}
