package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/migrate"
)

// Restore is Restore of the default settings.
func Restore(request events.RestorationRequest) (events.Restoration, error) {
	return Settings{}.Restore(request)
}

// Restore brings a proposal about. It places the nodes so that the fewest bytes move, and then so that the node that
// needs longest to fetch what it lacks, over its own links and from all holders, is ready soonest. It divides each
// transfer among few of the holders so that all are served as soon as possible (sources.go), and puts the all-reduces into
// rounds.
//
// It is a pure function of the settings and the request.
func (s Settings) Restore(request events.RestorationRequest) (events.Restoration, error) {
	return s.restore(request, nil)
}

// restore is Restore where it is known how long some givers take to begin.
func (s Settings) restore(request events.RestorationRequest, starts map[string][]begin) (events.Restoration, error) {
	r := &restoration{RestorationRequest: request, plan: request.Proposal.Plan, settings: s}
	r.late = r.waits(starts)
	if err := r.assign(); err != nil {
		return events.Restoration{}, err
	}
	if err := r.move(); err != nil {
		return events.Restoration{}, err
	}
	if err := r.schedule(); err != nil {
		return events.Restoration{}, err
	}
	result := events.Restoration{Negotiation: request.Negotiation, Plan: r.plan}
	for _, transfer := range r.plan.Migration.Transfers {
		result.BytesMoved += transfer.Bytes
	}
	units := r.plan.UnitsOfAll()
	for _, node := range r.plan.Nodes {
		for layer := range events.Each(units[node.Node]) {
			result.NaiveBytes += r.Units[layer]
		}
	}
	return result, nil
}

type restoration struct {
	events.RestorationRequest
	plan     events.Plan
	settings Settings
	late     map[string]float64  // seconds that a giver takes to begin, beyond a round trip
	holding  map[string]*holding // by node, made by heldBy
}

// holding is the units that a node can give, as the request tells them and as a set of those that the model has.
type holding struct {
	ranges []layers.Range
	units  layers.Set
}

func clonePipelines(pipelines []events.Pipeline) []events.Pipeline {
	clone := slices.Clone(pipelines)
	for i := range clone {
		clone[i].Stages = slices.Clone(clone[i].Stages)
	}
	return clone
}

// heldBy returns the units a node can give, as the holders in the request say.
func (r *restoration) heldBy(node string) *holding {
	if r.holding == nil {
		r.holding = map[string]*holding{}
		for _, holder := range r.Holders {
			held := r.holding[holder.Node]
			if held == nil {
				held = &holding{}
				r.holding[holder.Node] = held
			}
			held.ranges = append(held.ranges, ranges(holder.Units)...)
		}
		for _, held := range r.holding {
			held.units = r.unitsIn(held.ranges)
		}
	}
	if held := r.holding[node]; held != nil {
		return held
	}
	return &holding{units: r.unitsIn(nil)}
}

// unitsIn returns the set of the model's units in ranges.
func (r *restoration) unitsIn(ranges []layers.Range) layers.Set {
	count := len(r.Units)
	inside := make([]layers.Range, 0, len(ranges))
	for _, span := range ranges {
		if first, end := max(span.First, 0), min(span.End, count); first < end {
			inside = append(inside, layers.Range{First: first, End: end})
		}
	}
	units, _ := layers.NewSet(count, inside...) // all of them are
	return units
}

func ranges(units []events.Range) []layers.Range {
	list := make([]layers.Range, len(units))
	for i, span := range units {
		list[i] = layers.Range(span)
	}
	return list
}

func (r *restoration) holds(node string, unit int) bool { return r.heldBy(node).units.Has(unit) }

// assign gives the places to the nodes anew, within the planner's classes of nodes that may trade places. The places
// stay if micro-batches are rerouted: nobody moves, and lost nodes keep theirs.
func (r *restoration) assign() error {
	if len(r.plan.Reroutes) == 0 {
		proposed := r.plan.Pipelines
		r.plan.Pipelines = clonePipelines(proposed)
		if err := r.place(); err != nil {
			return err
		}
		r.plan.Predicted.PeakBytes = peaks(r.plan.Predicted.PeakBytes, proposed, r.plan.Pipelines)
	}
	r.plan.Migration.Moves = r.moves()
	return nil
}

// peaks gives each node the peak that was predicted for its place.
func peaks(predicted map[string]int64, proposed, taken []events.Pipeline) map[string]int64 {
	of := make(map[string]int64, len(predicted))
	for p, pipeline := range proposed {
		for s, stage := range pipeline.Stages {
			if peak, known := predicted[stage.Node]; known {
				of[taken[p].Stages[s].Node] = peak
			}
		}
	}
	return of
}

// place matches nodes with places. It matches nodes and deals partitions in turn until that saves no byte any more, if
// there are partitions. Then it has two pipelines trade their lists if that saves bytes with the nodes matched anew.
// The best of all would be an assignment in three indices, which is hard; of a thousand random problems of two or three
// pipelines this found it in 998.
func (r *restoration) place() error {
	if r.plan.Partitions() == 0 {
		return r.match()
	}
	proposed := clonePipelines(r.plan.Pipelines)
	if err := r.improve(r.matchBytes); err != nil {
		return err
	}
	if err := r.trade(); err != nil {
		return err
	}
	for p, pipeline := range proposed {
		copy(r.plan.Pipelines[p].Stages, pipeline.Stages) // who had better keep the place that was proposed
	}
	return r.improve(r.match)
}

// tradedNodes bounds how many trades are tried, times the nodes: all pairs of 12 pipelines of 12 stages, and four of
// 2,047 nodes.
const tradedNodes = 10_000

// trade has two pipelines trade their lists of partitions wherever that saves bytes with the nodes matched anew.
func (r *restoration) trade() error {
	least, matched := r.lacked(), 0
	for p := range r.plan.Pipelines {
		for q := range p {
			before := r.plan.Pipelines
			if slices.Equal(before[p].Partitions, before[q].Partitions) {
				continue
			}
			if matched += len(r.plan.Nodes); matched > tradedNodes {
				return nil
			}
			r.plan.Pipelines = clonePipelines(before)
			r.plan.Pipelines[p].Partitions, r.plan.Pipelines[q].Partitions = before[q].Partitions, before[p].Partitions
			if err := r.improve(r.matchBytes); err != nil {
				return err
			}
			if bytes := r.lacked(); bytes < least {
				least = bytes
			} else {
				r.plan.Pipelines = before
			}
		}
	}
	return nil
}

// improve matches and deals in turn.
func (r *restoration) improve(match func() error) error {
	for {
		if err := match(); err != nil {
			return err
		}
		if fewer, err := r.deal(); err != nil || !fewer {
			return err
		}
	}
}

// moves lists who holds something else than before.
func (r *restoration) moves() []events.Move {
	var moves []events.Move
	var before map[string][]events.Range
	if r.Current != nil {
		before = r.Current.UnitsOfAll()
	}
	lives := r.members()
	for p, pipeline := range r.plan.Pipelines {
		for s, stage := range pipeline.Stages {
			place := events.Place{Pipeline: p, Stage: s}
			if lives[stage.Node] && !slices.Equal(before[stage.Node], r.plan.UnitsAt(place)) {
				moves = append(moves, events.Move{Node: stage.Node, Becomes: place})
			}
		}
	}
	return moves
}

// match solves the migration and writes the nodes into the plan's places.
func (r *restoration) match() error {
	if r.isSettled() || r.isOfReplicas() { // of replicas each node fetches as much, whoever becomes whom
		return nil
	}
	pulls, err := r.pulls()
	if err != nil {
		return err
	}
	problem, places := r.migration()
	problem.Seconds = pulls.seconds
	migration, err := migrate.LeastTotal(problem)
	if err != nil {
		return fmt.Errorf("who becomes whom: %w", err)
	}
	settle(r.plan.Nodes, problem, places, migration)
	return nil
}

// isOfReplicas reports whether each node of the plan has a place, and all are to have the same: the whole model, or what all
// pipelines keep of it.
func (r *restoration) isOfReplicas() bool {
	members := r.members()
	differs := func(pipeline events.Pipeline) bool {
		return len(pipeline.Stages) != 1 || !members[pipeline.Stages[0].Node] ||
			!slices.Equal(pipeline.Partitions, r.plan.Pipelines[0].Partitions)
	}
	return len(r.plan.Pipelines) == len(r.plan.Nodes) && !slices.ContainsFunc(r.plan.Pipelines, differs)
}

// isSettled reports whether each place has a node of the plan, and none of these may trade it.
func (r *restoration) isSettled() bool {
	members := r.members()
	isEmpty := func(stage events.Stage) bool { return !members[stage.Node] }
	lacks := func(pipeline events.Pipeline) bool { return slices.ContainsFunc(pipeline.Stages, isEmpty) }
	mayTrade := func(class []string) bool { return len(class) > 1 }
	return !slices.ContainsFunc(r.Proposal.Classes, mayTrade) && !slices.ContainsFunc(r.plan.Pipelines, lacks)
}

// members are the nodes of the plan.
func (r *restoration) members() map[string]bool {
	members := make(map[string]bool, len(r.plan.Nodes))
	for _, member := range r.plan.Nodes {
		members[member.Node] = true
	}
	return members
}

// matchBytes is match for the fewest bytes, however long they take: at 2,047 nodes with 64 partitions a tenth of the
// work.
func (r *restoration) matchBytes() error {
	problem, places := r.migration()
	migration, err := migrate.LeastTotal(problem)
	if err != nil {
		return fmt.Errorf("who becomes whom: %w", err)
	}
	seat(r.plan.Nodes, places, migration.PlaceOf)
	return nil
}

// migration is the problem of who becomes whom, and the places of the plan in its order.
func (r *restoration) migration() (problem migrate.Problem, places []*events.Stage) {
	class := r.classes()
	problem.LayerBytes = r.Units
	for _, node := range r.plan.Nodes {
		problem.Survivors = append(problem.Survivors,
			migrate.Survivor{Holds: r.heldBy(node.Node).ranges, Group: class[node.Node]})
	}
	for p := range r.plan.Pipelines {
		for s := range r.plan.Pipelines[p].Stages {
			stage := &r.plan.Pipelines[p].Stages[s]
			places = append(places, stage)
			problem.Places = append(problem.Places,
				migrate.Place{
					Needs: ranges(r.plan.UnitsAt(events.Place{Pipeline: p, Stage: s})), Group: class[stage.Node],
				})
		}
	}
	return problem, places
}

// classes numbers the planner's classes; a node in none of them keeps the place it was given.
func (r *restoration) classes() map[string]int {
	class := map[string]int{}
	for i, nodes := range r.Proposal.Classes {
		for _, node := range nodes {
			class[node] = i
		}
	}
	for i, node := range r.plan.Nodes {
		if _, known := class[node.Node]; !known {
			class[node.Node] = len(r.Proposal.Classes) + i
		}
	}
	return class
}

// settle writes the nodes into their places. Survivors that hold the same may share out their places as they like,
// where nobody takes longer for it than the slowest does anyway: each takes the one the planner proposed for it where
// that is among them, so that fewer connections change.
func settle(nodes []events.Member, problem migrate.Problem, places []*events.Stage, migration migrate.Migration) {
	placeOf, missing := migration.PlaceOf, migration.Missing
	inTime := func(node int, missing []int) bool {
		return 1e9*problem.Seconds(missing)(node) < float64(migration.Nanoseconds+1)
	}
	mayTrade := func(i, j int) bool {
		a, b := problem.Survivors[i], problem.Survivors[j]
		return a.Group == b.Group && slices.Equal(a.Holds, b.Holds) && inTime(i, missing[j]) && inTime(j, missing[i])
	}
	proposed := map[string]int{}
	for i, place := range places {
		proposed[place.Node] = i
	}
	for i, node := range nodes {
		want, has := proposed[node.Node]
		if !has || placeOf[i] == want {
			continue
		}
		for j := range nodes {
			if placeOf[j] == want && mayTrade(i, j) {
				placeOf[i], placeOf[j] = placeOf[j], placeOf[i]
				missing[i], missing[j] = missing[j], missing[i]
				break
			}
		}
	}
	seat(nodes, places, placeOf)
}

// seat writes the nodes into their places.
func seat(nodes []events.Member, places []*events.Stage, placeOf []int) {
	for i, place := range placeOf {
		if place != migrate.Idle {
			places[place].Node = nodes[i].Node
		}
	}
}
