// Package ledger says which sample stands where in the endless run of the data, and proves that training took each
// once.
package ledger

import "math/bits"

// Order is the order of so many samples, at least one, in every epoch. The seed decides it.
type Order struct {
	Samples uint64
	Seed    uint64
}

// At returns the sample at a position of the endless run: every epoch of Samples positions has each sample once.
//
// It enciphers the position within the epoch by a Feistel network over the least even number of bits that hold all of
// them, and again while the result is none of them (cycle walking: Black and Rogaway 2002). The result is a permutation
// without a table. It takes less than four rounds of ciphering on average, as the network is less than four times as
// large as the epoch.
func (o Order) At(position uint64) uint64 {
	epoch, at := position/o.Samples, position%o.Samples
	half := (bits.Len64(o.Samples-1) + 1) / 2
	key := scramble(o.Seed ^ scramble(epoch))
	for {
		if at = encipher(at, key, half); at < o.Samples {
			return at
		}
	}
}

// rounds are twice what makes a random function of each half a pseudorandom permutation (Luby and Rackoff 1988).
const rounds = 8

func encipher(at, key uint64, half int) uint64 {
	mask := uint64(1)<<half - 1
	left, right := at>>half, at&mask
	for round := range uint64(rounds) {
		left, right = right, left^scramble(key+round<<32+right)&mask
	}
	return left<<half | right
}

// scramble is the finalizer of splitmix64.
func scramble(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
