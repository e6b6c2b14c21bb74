package model

// A Layer is a unit of the state. Unit l is layer l if the optimizer state stays whole. Unit l is the parameters of
// layer l if that state is cut into Z partitions (ZeRO stage 1). Unit (1+z)*L + l of a model of L layers is then the
// moments of the zth of Z even runs of them. Adam treats every parameter alike, so the bits do not depend on the cut.

// mostPartitions is what the cluster allows (events.MostPartitions).
const mostPartitions = 64

// Units is the number of units of the state.
func (s Shape) Units() int { return s.Layers() * (1 + s.Partitions) }

// LayerOf returns the layer of which a unit is the state, or a part.
func (s Shape) LayerOf(unit int) int { return unit % s.Layers() }

// Unit returns the unit of a partition of a layer's optimizer state.
func (s Shape) Unit(layer, partition int) int { return (1+partition)*s.Layers() + layer }

// Partition returns which parameters of a layer belong to a partition of its optimizer state.
func (s Shape) Partition(layer, partition int) (first, end int) {
	n := s.Parameters(layer)
	return n * partition / s.Partitions, n * (partition + 1) / s.Partitions
}

// moments returns of which parameters of its layer a unit holds the moments.
func (s Shape) moments(unit int) (first, end int) {
	switch layer := s.LayerOf(unit); {
	case s.Partitions == 0:
		return 0, s.Parameters(layer)
	case unit < s.Layers():
		return 0, 0
	default:
		return s.Partition(layer, unit/s.Layers()-1)
	}
}

// parameters returns how many parameters a unit holds: all of its layer, or none.
func (s Shape) parameters(unit int) int {
	if unit >= s.Layers() {
		return 0
	}
	return s.Parameters(unit)
}

// Blank returns the unit one step on, all zeros: ApplyPart and others fill the parameters in.
func (l *Layer) Blank() *Layer { return allocate(l.Shape, l.Index, l.Step+1) }

// Cut returns the units of a whole layer whose optimizer state is cut into so many partitions: its parameters, then the
// partitions. Without partitions that is the layer.
func (l *Layer) Cut(partitions int) []*Layer {
	if partitions == 0 {
		return []*Layer{l}
	}
	shape := l.Shape
	shape.Partitions = partitions
	var units []*Layer
	for unit := l.Index; unit < shape.Units(); unit += shape.Layers() {
		first, end := shape.moments(unit)
		part := allocate(shape, unit, l.Step)
		copy(part.Parameters, l.Parameters)
		copy(part.FirstMoment, l.FirstMoment[first:end])
		copy(part.SecondMoment, l.SecondMoment[first:end])
		units = append(units, part)
	}
	return units
}
