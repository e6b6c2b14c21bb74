package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/tests/bench/figures"
)

// drawnClusters is how many clusters lose nodes.
const drawnClusters = 200

// leastShare is what share of the best plan's samples a second must be reached after any losses.
const leastShare = 0.95

// planner has the settings that its service has by default.
var planner = machine.New(machine.Settings{Cluster: "c", MinReplicas: 2, SwitchSeconds: 1})

// losses has drawn clusters lose up to a quarter of their nodes, one after the other, and compares the plan that is
// reached with the planner's own for those who are left, were nothing in place.
func losses(r *figures.Report) error {
	fmt.Println("samples a second after the loss of nodes, one after the other, beside the best plan for those who are left")
	fmt.Printf("%14s %8s %8s %8s %8s %8s\n", "failures every", "lost", "clusters", "median", "5%", "worst")
	for _, between := range []time.Duration{time.Hour, 24 * time.Hour} {
		shares, err := sharesReached(between)
		if err != nil {
			return err
		}
		least := 1.0
		for lost := 1; len(shares[lost]) > 0; lost++ {
			of := shares[lost]
			slices.Sort(of)
			fmt.Printf("%14v %8d %8d %8.3f %8.3f %8.3f\n", between, lost, len(of), of[len(of)/2], of[len(of)/20], of[0])
			least = min(least, of[0])
		}
		r.Add(figures.Row{
			Figure: fmt.Sprintf("most that the best plan for who is left delivers beside the one reached, a failure every %v", between),
			Unit:   "times", Ours: 1 / least, Target: 1 / leastShare,
		})
	}
	fmt.Println()
	return nil
}

// sharesReached returns by nodes lost what share of the best plan's samples a second is reached, of each cluster.
func sharesReached(between time.Duration) (map[int][]float64, error) {
	shares := map[int][]float64{}
	for seed := range uint64(drawnClusters) {
		random := rand.New(rand.NewPCG(seed, 1))
		request := drawn(random)
		request.SecondsBetweenFailures = between.Seconds()
		for lost := range len(request.Nodes) / 4 {
			share, err := afterAnother(random, &request)
			if errors.Is(err, errNoPlan) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("seed %d: %w", seed, err)
			}
			shares[lost+1] = append(shares[lost+1], share)
		}
	}
	return shares, nil
}

// errNoPlan says that too few nodes are left to hold the model.
var errNoPlan = errors.New("no plan")

// afterAnother loses a node of the plan in force, if there is one, and returns what share of the best plan's samples
// the next one delivers.
func afterAnother(random *rand.Rand, request *events.PlanRequest) (float64, error) {
	if request.Current == nil {
		first, err := planner.Plan(*request)
		if err != nil {
			return 0, errors.Join(errNoPlan, err)
		}
		request.Current = &first.Plan
	}
	gone := random.IntN(len(request.Nodes))
	request.Nodes = slices.Delete(slices.Clone(request.Nodes), gone, gone+1)
	request.Generation++
	request.Current.Generation = request.Generation - 1
	anew := *request
	anew.Current = nil
	best, err := planner.Plan(anew)
	if err != nil {
		return 0, errors.Join(errNoPlan, err)
	}
	reached, err := planner.Plan(*request)
	if err != nil {
		return 0, err
	}
	request.Current = &reached.Plan
	return reached.Plan.Predicted.SamplesPerSecond / best.Plan.Predicted.SamplesPerSecond, nil
}

// drawn is a cluster of 8 to 32 nodes, half of them of unequal speed, which hold a quarter of the model or more.
func drawn(random *rand.Rand) events.PlanRequest {
	nodes, layers := 8+random.IntN(25), 8+random.IntN(25)
	request := events.PlanRequest{
		Negotiation: "g1", Cluster: "c", Generation: 1,
		Job: events.Job{Digest: events.Digest([]byte("job")), GlobalBatch: 8 * nodes, MicroBatch: 1},
	}
	bytes := int64(0)
	for range layers {
		layer := events.LayerProfile{
			ParameterBytes: 4e8, OptimizerBytes: 8e8, GradientBytes: 4e8, ActivationBytes: 1e8, OutputBytes: 1e6,
			ForwardSeconds: 0.01 * (0.5 + random.Float64()), BackwardSeconds: 0.02 * (0.5 + random.Float64()),
		}
		bytes += layer.StateBytes() + layer.GradientBytes
		request.Job.Layers = append(request.Job.Layers, layer)
	}
	memory := bytes/int64(1+random.IntN(4)) + 40e9
	for i := range nodes {
		node := fmt.Sprint("n", i)
		speed := 1.0
		if random.IntN(2) == 0 {
			speed += random.Float64()
		}
		member := events.Member{Node: node, Incarnation: "a", Address: node + ":1"}
		request.Nodes = append(request.Nodes, events.Device{Member: member, MemoryBytes: memory, SpeedFactor: speed})
	}
	return request
}
