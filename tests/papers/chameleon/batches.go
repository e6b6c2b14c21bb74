package chameleon

// ProportionalBatches is how Chameleon shares the batch (IV-B): each pipeline gets micro-batches in proportion to its
// length, rounded down; the leftover goes one each in index order, and an empty pipeline takes one from the first of
// the largest. The total must be at least the number of pipelines.
func ProportionalBatches(total int, lengths []int) []int {
	nodes := 0
	for _, length := range lengths {
		nodes += length
	}
	batches, left := make([]int, len(lengths)), total
	for j, length := range lengths {
		batches[j] = total * length / nodes
		left -= batches[j]
	}
	for j := 0; left > 0; j, left = (j+1)%len(batches), left-1 {
		batches[j]++
	}
	for j := range batches {
		if batches[j] == 0 {
			batches[largest(batches)]--
			batches[j]++
		}
	}
	return batches
}

func largest(values []int) int {
	at := 0
	for i, value := range values {
		if value > values[at] {
			at = i
		}
	}
	return at
}
