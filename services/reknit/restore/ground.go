package restore

import (
	"fmt"
	"os"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/cluster"
)

// What is taken for granted where no file says otherwise: of a link what the planner and the restorer take, of a layer
// 64 Mi parameters trained by Adam in mixed precision (2 bytes of weights, 12 of optimizer and 2 of gradients each).
const (
	assumedLinks = "links: 1 Gbit/s and a round trip of 1 ms where the file leaves them out, as the planner assumes"
	assumedModel = "layers: 896 MiB of state and 128 MiB of gradients each, for no file gives a model"
)

var assumedLayer = events.LayerProfile{
	ParameterBytes: 128 << 20, OptimizerBytes: 768 << 20, GradientBytes: 128 << 20, OutputBytes: 8 << 20,
}

// mostBytes is what the restorer's sums are good for.
const mostBytes = 1 << 60

// ground is what a file says of nodes, links and layers, or what is assumed of them.
type ground struct {
	layers []events.LayerProfile
	links  []events.Link
	nodes  map[string]node // those that the file tells of
	// measured are the links that tell how good they are, by sender and receiver.
	measured map[events.Pair]events.Measurement
	assumed  []string // for the reader
}

type node struct {
	memory cluster.Size
	speed  float64
}

// ground reads the file of links, if there is one. It needs none of its keys.
func (o options) ground(from, to events.Plan) (ground, error) {
	g := ground{layers: slices.Repeat([]events.LayerProfile{assumedLayer}, to.LayerCount()), nodes: map[string]node{}}
	if o.links == "" {
		g.assumed = []string{assumedLinks, assumedModel}
		return g, nil
	}
	data, err := os.ReadFile(o.links)
	if err != nil {
		return g, err
	}
	var file cluster.File
	d, err := cluster.Decode(o.links, data, &file)
	if err != nil {
		return g, err
	}
	if err := g.takeNodes(d, &file, from, to); err != nil {
		return g, err
	}
	return g, g.takeModel(d, file.Model, to)
}

// takeNodes reads nodes and links. The plans' nodes need not stand in the file.
func (g *ground) takeNodes(d *cluster.Document, file *cluster.File, from, to events.Plan) error {
	if err := file.CheckNodes(d); err != nil {
		return err
	}
	for _, told := range file.Nodes {
		speed := 1.0
		if told.Speed != nil {
			speed = *told.Speed
		}
		g.nodes[told.Node] = node{told.Memory, speed}
	}
	for _, member := range slices.Concat(from.Nodes, to.Nodes) {
		if !slices.ContainsFunc(file.Nodes, func(node cluster.Node) bool { return node.Node == member.Node }) {
			file.Nodes = append(file.Nodes, cluster.Node{Node: member.Node})
		}
	}
	if file.Links == nil || file.Links.Default == nil {
		g.assumed = append(g.assumed, assumedLinks)
	}
	links, err := file.EveryLink(d)
	g.connect(links)
	return err
}

func (g *ground) connect(links []events.Link) {
	g.links, g.measured = links, map[events.Pair]events.Measurement{}
	for _, link := range links {
		if link.BandwidthBytesPerSecond > 0 {
			g.measured[events.Pair{A: link.From, B: link.To}] = link.Measurement
		}
	}
}

func (g *ground) takeModel(d *cluster.Document, model cluster.Model, plan events.Plan) error {
	if !d.Has("model") {
		g.assumed = append(g.assumed, assumedModel)
		return nil
	}
	layers, err := model.EveryLayer(d)
	if err != nil {
		return err
	}
	if len(layers) != len(g.layers) {
		return d.Fault("model", fmt.Sprintf("the %d layers of the plans", len(g.layers)), len(layers))
	}
	if want := plan.Partitions(); model.OptimizerPartitions != want {
		return d.Fault("model.optimizerPartitions", fmt.Sprintf("the %d of the plans", want), model.OptimizerPartitions)
	}
	g.layers = layers
	total := 0.0
	for i, layer := range layers {
		total += float64(len(plan.Nodes)) * (float64(layer.StateBytes()) + float64(layer.GradientBytes))
		if layer.StateBytes() < 1 {
			return d.Fault("model", "parameters or an optimizer of every layer", fmt.Sprintf("none of layer %d", i))
		}
	}
	if total >= mostBytes {
		return d.Fault("model", "less than 2^60 bytes on all nodes", fmt.Sprintf("%.3g bytes", total))
	}
	return nil
}
