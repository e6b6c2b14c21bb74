package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// lie is one field of what a node says that is wrong, whenever the node says it.
type lie struct {
	kind events.Kind // of an event, or pulses or measurements
	path []string    // the names of the field and of those that hold it; of a list, in each of its elements
	how  string      // one of hows
}

// Words of a node that are no events of their own.
const (
	pulses       events.Kind = "pulse"
	measurements events.Kind = "probe"
)

// hows are the ways in which a value may be wrong, by what it is. A way does nothing to a value of another kind.
var hows = map[reflect.Kind][]string{
	reflect.Bool:    {"not"},
	reflect.String:  {"empty", "other"},
	reflect.Int64:   {"zero", "less", "more", "far"},
	reflect.Float64: {"zero", "tiny", "huge"},
	reflect.Slice:   {"none", "one", "twice"},
}

// nodeSays are the kinds that a node may say, with what each says.
func nodeSays() map[events.Kind]reflect.Type {
	says := map[events.Kind]reflect.Type{
		pulses: reflect.TypeFor[events.Pulse](), measurements: reflect.TypeFor[events.Measurement](),
	}
	for _, row := range events.Catalogue {
		if slices.Contains(row.SaidBy, "node") {
			says[row.Kind] = reflect.TypeOf(row.New()).Elem()
		}
	}
	return says
}

// Lies lists the faults that have a node lie in one field, in each way, or say what nothing asked for: all that the catalogue of what nodes
// say offers. A node that names another one as itself is not among them: the door of each service refuses a node that speaks for another
// (tests/security).
func Lies(node string) (all []string) {
	for kind, says := range nodeSays() {
		for _, field := range fieldsOf(says) {
			for _, how := range field.hows {
				if field.path != "node" || how == "empty" {
					all = append(all, fmt.Sprintf("lie %s %s %s %s", node, kind, field.path, how))
				}
			}
		}
	}
	for kind := range nodeSays() {
		if _, isEvent := kind.Row(); isEvent {
			all = append(all, fmt.Sprintf("blurt %s %s", node, kind))
		}
	}
	slices.Sort(all)
	return all
}

type field struct {
	path string
	hows []string
}

func fieldsOf(t reflect.Type) (all []field) {
	switch t.Kind() {
	case reflect.Pointer:
		return fieldsOf(t.Elem())
	case reflect.Slice:
		all = fieldsOf(t.Elem())
		if len(all) == 0 || all[0].path != "" {
			return append(all, field{"", hows[reflect.Slice]})
		}
		return []field{{"", slices.Concat(hows[reflect.Slice], all[0].hows)}}
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			for _, inner := range fieldsOf(t.Field(i).Type) {
				all = append(all, field{strings.TrimSuffix(name+"."+inner.path, "."), inner.hows})
			}
		}
		return all
	}
	if found := hows[widest(t.Kind())]; found != nil {
		return []field{{"", found}}
	}
	return nil
}

// widest is the kind under which hows lists one.
func widest(kind reflect.Kind) reflect.Kind {
	switch kind {
	case reflect.Int, reflect.Uint64:
		return reflect.Int64
	}
	return kind
}

// lied returns an event as the node says it. An event that a lie would make invalid is said as it is: the invalid one is refused at the
// door.
func (p *process) lied(event events.Event) events.Event {
	said, err := event.Read()
	if p.node.lies == nil || p.node.lies.kind != event.Kind || err != nil {
		return event
	}
	told := reflect.New(reflect.TypeOf(said).Elem()).Interface().(events.Payload)
	if json.Unmarshal(event.Data, told) != nil {
		return event
	}
	p.bend(reflect.ValueOf(told).Elem())
	data, err := json.Marshal(told)
	if err != nil || events.Decode(data, told) != nil {
		return event
	}
	p.node.lied++
	return events.Event{
		ID: event.ID, Kind: event.Kind, Source: event.Source, Subject: event.Subject, Cluster: event.Cluster, Cause: event.Cause,
		Traceparent: event.Traceparent, Time: event.Time, Data: data,
	}
}

// bends has the node lie in something that is no event, where it lies in such.
func bends[T any](p *process, kind events.Kind, said T) T {
	if p.node.lies == nil || p.node.lies.kind != kind {
		return said
	}
	bent := said // whose address is taken; what is not bent needs no place of its own
	p.bend(reflect.ValueOf(&bent).Elem())
	p.node.lied++
	return bent
}

// bend makes the field wrong in what the node says.
func (p *process) bend(said reflect.Value) { p.bendAt(said, p.node.lies.path, "") }

func (p *process) bendAt(value reflect.Value, path []string, name string) {
	switch {
	case value.Kind() == reflect.Pointer:
		if !value.IsNil() {
			p.bendAt(value.Elem(), path, name)
		}
	case value.Kind() == reflect.Slice && (len(path) > 0 || !slices.Contains(hows[reflect.Slice], p.node.lies.how)):
		if value.Len() == 0 { // there is nothing that could be wrong: it says what is not so
			value.Set(reflect.Append(value, p.plausible(value.Type().Elem(), name)))
		}
		for i := range value.Len() {
			p.bendAt(value.Index(i), path, name)
		}
	case len(path) > 0:
		for i := range value.NumField() {
			tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			if tag == path[0] {
				p.bendAt(value.Field(i), path[1:], tag)
			}
		}
	default:
		p.wrong(value, name)
	}
}

// far is further than anybody gets in a run.
const far = 1 << 40

// wrong changes a value in the way of the lie.
func (p *process) wrong(value reflect.Value, name string) {
	number := func(change func(int64) int64) {
		switch {
		case value.CanInt():
			value.SetInt(change(value.Int()))
		case value.CanUint():
			value.SetUint(uint64(max(0, change(int64(value.Uint())))))
		}
	}
	switch how := p.node.lies.how; how {
	case "not":
		value.SetBool(!value.Bool())
	case "empty":
		value.SetString("")
	case "other":
		value.Set(p.plausible(value.Type(), name))
		if value.String() == p.incarnation {
			value.SetString(p.incarnation + "-other")
		}
	case "zero", "none":
		value.SetZero()
	case "less":
		number(func(is int64) int64 { return is - 1 })
	case "more":
		number(func(is int64) int64 { return is + 1 })
	case "far":
		number(func(is int64) int64 { return is + far })
	case "tiny":
		value.SetFloat(1e-9)
	case "huge":
		value.SetFloat(1e9)
	case "one":
		value.Set(reflect.Append(value.Slice(0, 0), p.plausible(value.Type().Elem(), name)))
	case "twice":
		value.Set(reflect.AppendSlice(value, value))
	}
}

// blurt says an event of a kind that nothing asked for, again and again.
func (p *process) blurt(kind events.Kind) {
	row, known := kind.Row()
	if !known || p.node.blurts != kind {
		return
	}
	payload := reflect.New(reflect.TypeOf(row.New()).Elem())
	payload.Elem().Set(p.plausible(payload.Type().Elem(), ""))
	if said := payload.Interface().(events.Payload); said.Validate() == nil {
		p.node.lied++
		p.say(events.Speaker{Source: events.NodeSource(p.node.name), Cluster: cluster}.First(
			p.time(), fmt.Sprint(p.incarnation, " ", p.node.lied), kind, p.node.name, said))
	}
	p.later(blurtEvery, func() { p.blurt(kind) })
}

const blurtEvery = 100 * time.Millisecond

// plausible returns a value of a type as it would stand under a name in what this node says now: of itself, and of the first
// other node where another one is named.
func (p *process) plausible(t reflect.Type, name string) reflect.Value {
	value := reflect.New(t).Elem()
	switch t {
	case reflect.TypeFor[events.Job]():
		return reflect.ValueOf(p.job.Job)
	case reflect.TypeFor[events.Range]():
		return reflect.ValueOf(events.Range{End: 1})
	case reflect.TypeFor[events.Part]():
		return reflect.ValueOf(events.Part{Digest: anyDigest, End: p.job.UnitBytes()[0]})
	case reflect.TypeFor[events.Suspicion]():
		return reflect.ValueOf(events.Suspicion{Node: p.nodes[0].name, Refused: true, Reason: "connection reset"})
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			value.Field(i).Set(p.plausible(t.Field(i).Type, tag))
		}
	case reflect.Slice:
		return reflect.Append(value, p.plausible(t.Elem(), name))
	case reflect.String:
		value.SetString(p.plausibleText(name))
	case reflect.Int, reflect.Int64:
		value.SetInt(map[string]int64{"memoryBytes": 1 << 30, "bytes": p.job.UnitBytes()[0]}[name])
	case reflect.Uint64:
		generation := p.World.generation()
		value.SetUint(map[string]uint64{"generation": generation, "trained": generation, "step": p.done, "steps": p.done, "stopStep": p.done}[name])
	case reflect.Float64:
		value.SetFloat(1)
	}
	return value
}

// anyDigest is of bytes that nobody has.
var anyDigest = digestOf(mix(1, 2))

func (p *process) plausibleText(name string) string {
	if name == "negotiation" {
		return p.lastOpened()
	}
	texts := map[string]string{
		"node": p.node.name, "from": p.node.name, "to": p.nodes[0].name, "refuses": p.nodes[0].name, "incarnation": p.incarnation,
		"digest": anyDigest, "plan": anyDigest,
	}
	return cmp.Or(texts[name], name)
}

// lastOpened is the negotiation that was opened last.
func (p *process) lastOpened() string {
	for _, event := range slices.Backward(p.hub.log[p.hub.Events]) {
		if event.Kind == events.NegotiationOpened {
			return event.Subject
		}
	}
	return "none"
}
