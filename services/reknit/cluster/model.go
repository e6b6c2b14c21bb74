package cluster

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// EveryLayer returns the profile of each layer. It fails with a Fault where the model has too many layers or none, or
// where its optimizer state cannot be cut as it says.
func (m Model) EveryLayer(d *Document) ([]events.LayerProfile, error) {
	profiles, err := m.profiles(d)
	if err != nil {
		return nil, err
	}
	if err := m.checkTimes(d, profiles); err != nil {
		return nil, err
	}
	var layers []events.LayerProfile
	for _, profile := range profiles {
		layers = append(layers, profile.layer())
	}
	return layers, m.checkPartitions(d, layers)
}

// at is where the profile of a layer stands.
func (m Model) at(layer int) string {
	if m.Profile != nil {
		return "model.profile"
	}
	return fmt.Sprintf("model.profiles[%d]", layer)
}

// checkTimes checks that both times of all layers are there, or none: what is left out of some is not zero.
func (m Model) checkTimes(d *Document, profiles []Profile) error {
	isTimed := slices.ContainsFunc(profiles, func(p Profile) bool { return p.Forward != nil || p.Backward != nil })
	for i, profile := range profiles {
		for _, time := range []struct {
			key  string
			told *Span
		}{{"forward", profile.Forward}, {"backward", profile.Backward}} {
			if isTimed && time.told == nil {
				return d.Fault(m.at(i)+"."+time.key, "a time: both are told of all layers, or none", "none")
			}
		}
	}
	return nil
}

// checkPartitions checks that each partition of each layer's optimizer state has a byte at least, and each layer
// parameters besides.
func (m Model) checkPartitions(d *Document, layers []events.LayerProfile) error {
	const field = "model.optimizerPartitions"
	count := m.OptimizerPartitions
	switch rows := len(layers) * (1 + count); {
	case count < 0 || count > events.MostPartitions:
		return d.Fault(field, fmt.Sprintf("0 to %d", events.MostPartitions), count)
	case count > 0 && rows > events.MostUnits:
		return d.Fault(field, fmt.Sprintf("at most %d layers and partitions of layers", events.MostUnits), rows)
	}
	for i, layer := range layers {
		at := m.at(i)
		switch {
		case count > 0 && layer.ParameterBytes < 1:
			return d.Fault(at+".parameters", "more than 0, where there are optimizerPartitions",
				tell.Bytes(layer.ParameterBytes))
		case layer.OptimizerBytes < int64(count):
			return d.Fault(at+".optimizer", fmt.Sprintf("a byte at least for each of %d optimizerPartitions", count),
				tell.Bytes(layer.OptimizerBytes))
		}
	}
	return nil
}

// profiles returns one for each layer.
func (m Model) profiles(d *Document) ([]Profile, error) {
	profiles := m.Profiles
	switch {
	case m.Profile == nil && len(m.Profiles) == 0, m.Profile != nil && len(m.Profiles) > 0:
		return nil, d.Fault("model", "layers and their profile, or profiles", "neither or both")
	case m.Profile != nil && (m.Layers < 1 || m.Layers > events.MostUnits):
		return nil, d.Fault("model.layers", fmt.Sprintf("1 to %d", events.MostUnits), m.Layers)
	case m.Profile != nil:
		profiles = slices.Repeat([]Profile{*m.Profile}, m.Layers)
	case len(profiles) > events.MostUnits:
		return nil, d.Fault("model.profiles", fmt.Sprintf("1 to %d", events.MostUnits), len(profiles))
	case m.Layers != 0 && m.Layers != len(profiles):
		return nil, d.Fault("model.layers", fmt.Sprintf("the %d of profiles, or nothing", len(profiles)), m.Layers)
	}
	return profiles, nil
}

func (p Profile) layer() events.LayerProfile {
	layer := events.LayerProfile{
		ParameterBytes: int64(p.Parameters), OptimizerBytes: int64(p.Optimizer), GradientBytes: int64(p.Gradients),
		ActivationBytes: int64(p.Activations), OutputBytes: int64(p.Output),
	}
	if p.Forward != nil {
		layer.ForwardSeconds, layer.BackwardSeconds = float64(*p.Forward), float64(*p.Backward)
	}
	return layer
}
