package main

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/world"
)

// sample is how large things are at a time.
type sample struct {
	days     float64
	machines map[string]float64 // bytes
	// stretches are those in which the negotiator remembers where the data went on. There are 1,024 at most (protocol.Data), and
	// they are not in the bytes.
	stretches int
	stores    []world.Store
}

// look measures what each service remembers, what each machine takes with all that a restart forgets, and the stores.
func (c *course) look() sample {
	s := sample{days: c.world.Now().Hours() / 24, machines: map[string]float64{}, stores: c.world.Stores()}
	for name, machine := range c.world.Machines() {
		remembers, ok := machine.(service.Machine)
		if !ok {
			s.machines[agents] = max(s.machines[agents], float64(reached(machine)))
			continue
		}
		snapshot, err := remembers.Snapshot()
		if err != nil {
			panic(err) // the service itself would have ended
		}
		kept, count := bounded(snapshot)
		s.stretches = max(s.stretches, count)
		s.machines[name+", remembered"] = float64(len(snapshot) - kept)
		s.machines[name+", in all"] = float64(reached(machine))
	}
	return s
}

// bounded returns how much of a memory is a table that is kept short, and how many entries that has.
func bounded(snapshot []byte) (bytes, count int) {
	var memory struct {
		Data json.RawMessage `json:"data"`
	}
	var stretches protocol.Data
	if json.Unmarshal(snapshot, &memory) != nil || json.Unmarshal(memory.Data, &stretches) != nil {
		return 0, 0 // another service's
	}
	return len(memory.Data), len(stretches)
}

const agents = "the largest agent"

// reached returns how many bytes a value takes with all that it reaches, but for stretches and the room for more of them.
func reached(value any) int {
	seen := map[uintptr]bool{}
	var size func(v reflect.Value) int
	size = func(v reflect.Value) (bytes int) {
		if v.IsValid() && v.Type() == reflect.TypeFor[protocol.Data]() {
			return 0
		}
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || seen[v.Pointer()] {
				return 0
			}
			seen[v.Pointer()] = true
			return int(v.Type().Elem().Size()) + size(v.Elem())
		case reflect.Interface:
			return size(v.Elem())
		case reflect.String:
			return v.Len()
		case reflect.Slice:
			if v.Len() == 0 || seen[v.Pointer()] {
				return 0
			}
			seen[v.Pointer()] = true
			bytes = v.Cap() * int(v.Type().Elem().Size())
			for i := range v.Len() {
				bytes += size(v.Index(i))
			}
		case reflect.Map:
			for entries := v.MapRange(); entries.Next(); {
				bytes += int(v.Type().Key().Size()+v.Type().Elem().Size()) + size(entries.Key()) + size(entries.Value())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				bytes += size(v.Field(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				bytes += size(v.Index(i))
			}
		}
		return bytes
	}
	return size(reflect.ValueOf(value))
}

// trend is the straight line that fits best.
type trend struct {
	mean  float64
	slope float64 // a day
	error float64 // of the slope: one standard error
}

// fit finds the trend of a machine's size in some samples.
func fit(samples []sample, name string) trend {
	n, days, size := float64(len(samples)), 0.0, 0.0
	for _, s := range samples {
		days, size = days+s.days, size+s.machines[name]
	}
	days, size = days/n, size/n
	var xx, xy, rest float64
	for _, s := range samples {
		xx, xy = xx+(s.days-days)*(s.days-days), xy+(s.days-days)*(s.machines[name]-size)
	}
	for _, s := range samples {
		off := s.machines[name] - size - xy/xx*(s.days-days)
		rest += off * off
	}
	return trend{mean: size, slope: xy / xx, error: math.Sqrt(rest / (n - 2) / xx)}
}

// Growth of less than that a day is none, and neither is what may be chance.
const (
	growth = 0.01
	chance = 2 // standard errors
)

func (t trend) grows() bool { return t.slope-chance*t.error > growth*t.mean }

// settled returns the samples of the second half of the run: what grows without a bound does so there, too. The monitor's memory of a
// thousand nodes fills for three days.
func (c *course) settled() []sample {
	from := c.long.Hours() / 24 / 2
	return slices.DeleteFunc(slices.Clone(c.samples), func(s sample) bool { return s.days < from })
}

// store is how one of the stores came to be filled.
type store struct {
	world.Store
	most   float64 // bytes that it has held
	perDay float64 // bytes that came, while it dropped nothing for its age
}

// filled returns how the stores came to be filled.
func (c *course) filled() []store {
	var stores []store
	for i, last := range c.samples[len(c.samples)-1].stores {
		s := store{Store: last}
		for _, sample := range c.samples {
			held := float64(sample.stores[i].Held)
			s.most = max(s.most, held)
			if last.Age == 0 || sample.days < last.Age.Hours()/24 {
				s.perDay = held / sample.days
			}
		}
		stores = append(stores, s)
	}
	return stores
}

// settles reports whether the store does not fill for ever: what comes replaces what is there, or the oldest, or the
// newest plans alone are kept.
func (s store) settles() bool {
	return s.Name != events.EventStream.Name
}

// needs returns what the store will hold once it drops as much as comes, and after so many days where it drops nothing.
func (s store) needs(days float64) float64 {
	if s.settles() {
		return s.most
	}
	if s.Age > 0 {
		days = s.Age.Hours() / 24
	}
	return max(s.most, s.perDay*days)
}
