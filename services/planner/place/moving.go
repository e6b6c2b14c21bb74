package place

// moving is what it costs to get from what the nodes hold to a layout.
type moving struct {
	horizon float64     // steps that are expected to be made with the layout
	fetch   [][]float64 // by node, by column: seconds to fetch what the node lacks
	column  []int       // of a seat
	at      []float64   // per seat: seconds of the node there
	total   float64
}

func (m *moving) measure(nodeOf []int) {
	m.total = 0
	for seat, node := range nodeOf {
		m.at[seat] = m.fetch[node][m.column[seat]]
		m.total += m.at[seat]
	}
}

func (m *moving) set(l *layout, seat int) {
	seconds := m.fetch[l.nodeOf[seat]][m.column[seat]]
	l.set(&m.total, m.total+seconds-m.at[seat])
	l.set(&m.at[seat], seconds)
}

// slowest: all fetch at the same time.
func (m *moving) slowest() float64 {
	slowest := 0.0
	for _, seconds := range m.at {
		slowest = max(slowest, seconds)
	}
	return slowest
}

func (m *moving) mean() float64 { return m.total / float64(len(m.at)) }
