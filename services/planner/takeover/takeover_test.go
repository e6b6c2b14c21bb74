package takeover

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// slowest is the twin: every division there is, with its end and its bytes counted anew.
func slowest(works []Work, workers []Worker, floor float64) (end float64, found bool) {
	shares := make([][]int, len(works))
	for work := range works {
		shares[work] = make([]int, len(works[work].Workers))
	}
	end = math.Inf(1)
	var try func(work, at, left int)
	try = func(work, at, left int) {
		switch {
		case work == len(works):
			if got, fits := judged(works, workers, shares); fits {
				end, found = min(end, max(got, floor)), true
			}
		case at == len(shares[work])-1:
			shares[work][at] = left
			next := 0
			if work+1 < len(works) {
				next = works[work+1].Pieces
			}
			try(work+1, 0, next)
		default:
			for share := 0; share <= left; share++ {
				shares[work][at] = share
				try(work, at+1, left-share)
			}
		}
	}
	try(0, 0, works[0].Pieces)
	return end, found
}

// judged is when the last worker with a piece is done, and whether all have room.
func judged(works []Work, workers []Worker, shares [][]int) (end float64, fits bool) {
	fits = true
	for worker, w := range workers {
		seconds, bytes, pieces := 0.0, int64(0), 0
		for i, work := range works {
			for at, who := range work.Workers {
				if who == worker {
					seconds += float64(shares[i][at]) * work.Seconds
					bytes += work.FilledBytes(shares[i][at])
					pieces += shares[i][at]
				}
			}
		}
		if pieces > 0 {
			end = max(end, w.BusySeconds+seconds/w.Speed)
		}
		fits = fits && bytes <= w.RoomBytes
	}
	return end, fits
}

// drawn is works of up to so many pieces among two to four workers.
func drawn(random *rand.Rand, works, pieces int, alike bool) ([]Work, []Worker) {
	var workers []Worker
	for range 2 + random.IntN(3) {
		workers = append(workers, Worker{
			BusySeconds: float64(random.IntN(30)), Speed: float64(1 + random.IntN(2)), RoomBytes: 1000,
		})
		if random.IntN(4) == 0 {
			workers[len(workers)-1].RoomBytes = random.Int64N(12)
		}
	}
	var list []Work
	for range 1 + random.IntN(works) {
		work := Work{Pieces: 1 + random.IntN(pieces), Seconds: float64(random.IntN(12)), Bytes: random.Int64N(4)}
		if alike {
			work.Seconds = 3
		}
		work.InFlight = 1 + random.IntN(work.Pieces)
		for worker := range workers {
			if random.IntN(3) > 0 {
				work.Workers = append(work.Workers, worker)
			}
		}
		if len(work.Workers) > 0 {
			list = append(list, work)
		}
	}
	return list, workers
}

func TestTheEndIsTheLeastOfAllDivisions(t *testing.T) {
	compared, refused := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		works, workers := drawn(random, 4, 4, false)
		if len(works) == 0 {
			continue
		}
		floor := float64(random.IntN(40))
		shares, end, err := Divide(works, workers, floor)
		want, found := slowest(works, workers, floor)
		if !found {
			if refused++; !errors.As(err, new(Unfit)) {
				t.Fatalf("seed %d: got %v, %v, where nothing fits", seed, shares, err)
			}
			continue
		}
		compared++
		got, fits := judged(works, workers, shares)
		if err != nil || math.Abs(end-want) > 1e-9 || math.Abs(max(got, floor)-end) > 1e-9 || !fits {
			t.Fatalf("seed %d: %+v among %+v: got %v, end %v (%v, fits: %t, %v), want %v", seed, works, workers, shares, end, got,
				fits, err, want)
		}
		for work, list := range shares {
			if sum(list) != works[work].Pieces {
				t.Fatalf("seed %d: work %d: %v of %d pieces", seed, work, list, works[work].Pieces)
			}
		}
	}
	if compared < 2000 || refused < 10 {
		t.Fatalf("%d compared, %d refused", compared, refused)
	}
}

// The end of pieces that take equally long is exact without a search, however many they are: whether an end can be met is then a
// question of flow, which the twin answers.
func TestOfPiecesThatTakeAsLongTheEndIsExactHoweverManyTheyAre(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		works, workers := drawn(random, 12, 60, true)
		for i := range workers {
			workers[i].RoomBytes = math.MaxInt64
		}
		if len(works) == 0 {
			continue
		}
		_, end, err := Divide(works, workers, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !canEnd(works, workers, end*(1+1e-9)) || canEnd(works, workers, end*(1-1e-9)) {
			t.Fatalf("seed %d: %+v among %+v ends at %v, which is not the least", seed, works, workers, end)
		}
	}
}

// canEnd reports whether all pieces of three seconds can be done by some time: Hall's condition for every set of works.
func canEnd(works []Work, workers []Worker, end float64) bool {
	for set := 1; set < 1<<len(works); set++ {
		pieces, room, counted := 0, 0, map[int]bool{}
		for i, work := range works {
			if set>>i&1 == 0 {
				continue
			}
			pieces += work.Pieces
			for _, worker := range work.Workers {
				if !counted[worker] {
					counted[worker] = true
					room += max(0, int(math.Floor((end-workers[worker].BusySeconds)*workers[worker].Speed/3)))
				}
			}
		}
		if pieces > room {
			return false
		}
	}
	return true
}

func sum(list []int) int {
	total := 0
	for _, value := range list {
		total += value
	}
	return total
}

// A thousand nodes that lose a tenth, 64 micro-batches of eight layers of two sizes each.
func BenchmarkDivide(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 3))
	workers := make([]Worker, 900)
	for i := range workers {
		workers[i] = Worker{BusySeconds: float64(random.IntN(3)), Speed: 1, RoomBytes: math.MaxInt64}
	}
	var works []Work
	for stage := range 8 {
		for layer := range 8 {
			work := Work{Pieces: 64 * 12, Seconds: float64(1 + layer/7)}
			for worker := stage; worker < len(workers); worker += 8 {
				work.Workers = append(work.Workers, worker)
			}
			works = append(works, work)
		}
	}
	for b.Loop() {
		if _, _, err := Divide(works, workers, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// uneven is works of so many layers, half of them lost, which four pipelines cut at different places. A layer takes a second, or a
// drawn time.
func uneven(layers int, random *rand.Rand) (works []Work, workers []Worker) {
	holders := make([][]int, layers)
	for _, ends := range [][]int{{7, 15, 23, 32}, {10, 21, 32}, {12, 22, 32}, {9, 17, 25, 32}} {
		first := 0
		for _, end := range ends {
			for layer := first * layers / 32; layer < end*layers/32; layer++ {
				holders[layer] = append(holders[layer], len(workers))
			}
			workers, first = append(workers, Worker{BusySeconds: 30, Speed: 1, RoomBytes: math.MaxInt64}), end
		}
	}
	for layer := layers / 4; layer < 3*layers/4; layer++ {
		work := Work{Pieces: 64, Seconds: 1, InFlight: 3, Bytes: 1, Workers: holders[layer]}
		if random != nil {
			work.Seconds += random.Float64()
		}
		works = append(works, work)
	}
	return works, workers
}

// Each piece is offered to each of its workers once. Were a worker's sums made anew for each piece, that alone would be 260 million
// looks.
func TestPiecesOf4096LayersAreDealtAndMovedInAFewMillionLooks(t *testing.T) {
	const most = 10_000_000
	for about, random := range map[string]*rand.Rand{"alike": nil, "drawn": rand.New(rand.NewPCG(1, 4))} {
		works, workers := uneven(4096, random)
		d := newDivision(works, workers)
		if err := d.deal(); err != nil {
			t.Fatal(err)
		}
		if want := 2048 * 64 * 4; d.looked != want {
			t.Errorf("layers that take times that are %s: %d looks to deal, expected %d", about, d.looked, want)
		}
		d.even(0)
		t.Logf("layers that take times that are %s: %d looks", about, d.looked)
		if d.looked > most {
			t.Errorf("layers that take times that are %s: %d looks, expected at most %d", about, d.looked, most)
		}
	}
}
