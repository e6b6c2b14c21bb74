package queue

import "time"

// Measuring: over a window so long that a gap counts together with the burst behind it, when a lost packet held up what
// had come. Samples of 20 ms took the burst alone for a rate five times the link's.
const (
	meterWindow = 800 * time.Millisecond
	meterGrain  = 20 * time.Millisecond // arrivals within it count as one, and nothing is known before it is over
)

// arrival is bytes that came, from a moment on.
type arrival struct {
	at    time.Time
	bytes int64
}

// meter measures the rate of a source while it is asked for something.
type meter struct {
	planned  float64 // bytes/s; zero where nothing is known
	earlier  float64 // bytes/s when it was last asked for something; zero before that
	bytes    int64   // in all
	busy     time.Duration
	asked    bool
	since    time.Time // the beginning of being asked
	heard    time.Time // the last byte, or the beginning of being asked
	arrivals []arrival // in the window, and two at least
	begun    time.Time // when it was asked for something first
	first    arrival   // of all
}

// start says that the source is asked for something from now on.
func (m *meter) start(now time.Time) {
	if !m.asked {
		m.asked, m.since, m.heard = true, now, now
	}
	if m.begun.IsZero() {
		m.begun = now
	}
}

// stop says that nothing is asked of the source any more.
func (m *meter) stop(now time.Time) {
	if m.asked {
		m.earlier = m.measured(m.heard) // the silence of one who failed is no rate
		m.busy += now.Sub(m.since)
		m.asked, m.arrivals = false, nil
	}
}

func (m *meter) add(bytes int64, now time.Time) {
	if m.bytes == 0 {
		m.first = arrival{now, bytes}
	}
	m.bytes += bytes
	m.heard = now
	for len(m.arrivals) > 2 && now.Sub(m.arrivals[0].at) > meterWindow {
		m.arrivals = m.arrivals[1:]
	}
	if last := len(m.arrivals) - 1; last >= 0 && now.Sub(m.arrivals[last].at) < meterGrain {
		m.arrivals[last].bytes += bytes
		return
	}
	m.arrivals = append(m.arrivals, arrival{now, bytes})
}

// speed returns the bytes/s that may be expected, and false where nothing is known.
func (m *meter) speed(now time.Time) (float64, bool) {
	rate := m.known()
	if m.asked {
		rate = m.measured(now)
	}
	return rate, rate > 0
}

// known is the rate before the source was asked for what it is asked for now.
func (m *meter) known() float64 {
	if m.earlier > 0 {
		return m.earlier
	}
	return m.planned
}

// measured is the rate in the window. The rate that was known before stands for the part of the window that is not over
// yet.
func (m *meter) measured(now time.Time) float64 {
	bytes, in := 0.0, 0
	for _, came := range m.arrivals {
		if now.Sub(came.at) <= meterWindow {
			bytes += float64(came.bytes)
			in++
		}
	}
	over := min(now.Sub(m.since), meterWindow)
	switch {
	case over == meterWindow && in < 2:
		return m.sparse(now)
	case m.known() > 0:
		return (bytes + m.known()*(meterWindow-over).Seconds()) / meterWindow.Seconds()
	case over < meterGrain:
		return 0
	}
	return bytes / over.Seconds()
}

// sparse is the rate of a link that brings fewer than two chunks in a window: what came last, over the time since what
// came before it. It is less than a chunk in that time if nothing came.
func (m *meter) sparse(now time.Time) float64 {
	bytes, since := int64(ChunkBytes), m.since
	if last := len(m.arrivals) - 1; last >= 0 {
		bytes = m.arrivals[last].bytes
		if last > 0 {
			since = m.arrivals[last-1].at
		}
	}
	return float64(bytes) / now.Sub(since).Seconds()
}

// mean returns the bytes/s over all the time the source was asked for something.
func (m *meter) mean(now time.Time) float64 {
	busy := m.busy
	if m.asked {
		busy += now.Sub(m.since)
	}
	if busy <= 0 {
		return 0
	}
	return float64(m.bytes) / busy.Seconds()
}

// waited returns the seconds from when the source was asked first until its first byte came: until what came first was there, less
// what that took at the mean rate. Zero where nothing came.
func (m *meter) waited(now time.Time) float64 {
	rate := m.mean(now)
	if m.bytes == 0 || rate <= 0 {
		return 0
	}
	return max(0, m.first.at.Sub(m.begun).Seconds()-float64(m.first.bytes)/rate)
}
