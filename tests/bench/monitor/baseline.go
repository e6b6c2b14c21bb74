package main

import "math"

// baseline is a detector of the field that hears heartbeats and nothing else.
type baseline struct {
	name    string
	timeout func(*intervals) float64 // after which a silent node is failed
	heard   []float64                // by node, when last
	learned []intervals              // by node
	found                            // what it found
}

// intervals are what a detector knows of those between heartbeats: mean and deviation of about the last hundred.
type intervals struct{ mean, variance float64 }

const weight = 0.01 // of an interval; a hundred of them count

func (i *intervals) learn(interval float64) {
	delta := interval - i.mean
	i.mean += weight * delta
	i.variance = (1 - weight) * (i.variance + weight*delta*delta)
}

// sigmas is how many deviations above the mean phi is 8.
const sigmas = 5.61

// baselines are those of the table: fixed timeouts, as torchft (5 s), torchelastic (15 s) and Kubernetes (40 s) have them,
// and phi-accrual, plain and as Akka has it, with a pause of 3 s.
func baselines(nodes int) (list []*baseline) {
	for _, fixed := range []struct {
		name    string
		seconds float64
	}{{"fixed, 5 s (torchft)", 5}, {"fixed, 15 s (torchelastic)", 15}, {"fixed, 40 s (Kubernetes)", 40}} {
		list = append(list, &baseline{name: fixed.name, timeout: func(*intervals) float64 { return fixed.seconds }})
	}
	for _, phi := range []struct {
		name  string
		pause float64
	}{{"phi 8", 0}, {"phi 8 and a pause of 3 s (Akka)", 3}} {
		list = append(list, &baseline{name: phi.name, timeout: func(i *intervals) float64 {
			return i.mean + phi.pause + sigmas*max(math.Sqrt(i.variance), 0.1)
		}})
	}
	for _, b := range list {
		b.heard, b.learned = make([]float64, nodes), make([]intervals, nodes)
		for node := range b.learned {
			b.learned[node].mean = beatSeconds
		}
	}
	return list
}

// hear takes a heartbeat of a node that has lived all the time since the one before.
func (b *baseline) hear(now float64, node int) {
	interval := now - b.heard[node]
	if b.heard[node] > 0 {
		if interval > b.timeout(&b.learned[node]) {
			b.falsely(now, node)
		}
		b.learned[node].learn(min(interval, 3*beatSeconds))
	}
	b.heard[node] = now
}
