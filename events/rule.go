package events

import "fmt"

// Rule is what a message must keep that JSON Schema cannot say, or not so that anybody would read it.
type Rule struct {
	Name string `json:"name"` // as the refusal of a message that breaks it says
	Of   string `json:"of"`   // the definition of the schemas that it is about; "event" is the envelope
	Says string `json:"says"`
}

// Rules are all there are: whatever a schema takes and the services refuse breaks one of them.
var Rules = []Rule{
	{"names", "event", "A field's name is written as here: another that differs only in case is none that may be added."},
	{"numbers", "event", "A whole number is written without a fraction or an exponent, and none, wherever it is, is beyond what 64 bits hold (IEEE 754)."},
	{"size", "event", "An event has 64 KiB at most, and a payload that travels apart 64 MiB, of a node as much as events/bound.go says."},
	{"place", "event", "The NATS subject names the cluster, the kind and the subject that the event does."},
	{"speaker", "event", "A node speaks for itself: of a fact about nodes the subject and data.node, and of any other data.node, " +
		"are the node of the source; a link has it as one end. If others say a fact about nodes, data.node is the subject."},
	{"ends", "LinkRequest, LinkState, Measurement, Link", "from and to are two nodes, but in between of usual, which has sites."},
	{"range", "Range", "A range of units has first < end."},
	{"job", "Job", "microBatch divides globalBatch, which is 65,536 micro-batches at most. A max of pipelines or stages is not below its min. stages.min is at most " +
		"the number of layers and pipelines.min, without a batchRule, that of micro-batches. A layer has state. Tied are runs of two layers or more, " +
		"one behind the other. batchRule.samplesPerNode is a multiple of microBatch, 65,536 times at most. Units of partitions are 4,096 at most, none empty. A " +
		"data-parallel job has stages.min 1 at most and no pipelines.max, a sharded one no optimizerPartitions, and " +
		"only a data-parallel one local data."},
	{"neighbours", "Join", "Neighbours are other nodes, each once."},
	{"samples", "Join", "A node whose job's data is local says how many samples it has."},
	{"plan", "Plan", "Every pipeline has each layer once, in stages one behind the other, 4,096 layers and units at most. A node is listed once and has one " +
		"place at most; whoever is named is listed, but a lost node whose micro-batches are all rerouted. Micro-batches, samples and weights add up. " +
		"A round has a node once. Shards of a transfer are whole. A plan behind the first has a parent."},
	{"refuses", "Consent", "Who accepts refuses nobody."},
	{"own-links", "Consent", "A node tells measurements from itself only."},
	{"kept", "Keeping", "bytes is how many the units have in all."},
	{"parts", "Part", "Parts have first < end <= bytes."},
	{"profile", "Profile", "otherBytes is at most peakBytes."},
	{"silent", "SiteState", "silent is at most nodes."},
	{"sites", "Usual", "between is in the order of from and to, each pair once."},
	{"whole-plan", "RestorationRequest", "units are those of the proposal's plan, and gradients, if told, its layers'."},
}

// RuleError is a broken rule.
type RuleError struct {
	Rule string
	Err  error // which field, and what was expected
}

// Error ends in the rule's name, however long it is what breaks it: a record of a refusal has 512 characters.
func (e *RuleError) Error() string { return fmt.Sprintf("%.400v (rule %s)", e.Err, e.Rule) }

func (e *RuleError) Unwrap() error { return e.Err }

// rule checks what a rule says of a field.
func (c *check) rule(rule string, holds bool, field, expected string, got any) {
	if c.err == nil && !holds {
		c.breaks(rule, &FieldError{Field: field, Expected: expected, Got: fmt.Sprintf("%v", got)})
	}
}

// breaks notes what broke a rule; nil: nothing did.
func (c *check) breaks(rule string, err error) {
	if c.err == nil && err != nil {
		c.err = &RuleError{rule, err}
	}
}
