package shards

import "time"

// Measuring: a sample is taken after so long at least and counts half, or wholly when it is as long as quiet. A source
// that is asked for bytes and sends none for quiet is as slow as its silence says.
const (
	samplePeriod = 20 * time.Millisecond
	quiet        = 250 * time.Millisecond
)

// meter measures the rate of a source while it is asked for something.
type meter struct {
	planned float64 // bytes/s; zero where nothing is known
	rate    float64 // bytes/s lately; zero before the first sample
	bytes   int64   // in all
	busy    time.Duration
	asked   bool
	since   time.Time // the beginning of the present sample, or of being asked
	sample  int64     // bytes in it
	heard   time.Time // the last byte, or the beginning of being asked
}

// start says that the source is asked for something from now on.
func (m *meter) start(now time.Time) {
	if !m.asked {
		m.asked, m.since, m.heard, m.sample = true, now, now, 0
	}
}

// stop says that nothing is asked of the source any more.
func (m *meter) stop(now time.Time) {
	if m.asked {
		m.busy += now.Sub(m.since)
		m.asked = false
	}
}

func (m *meter) add(bytes int64, now time.Time) {
	m.bytes += bytes
	m.sample += bytes
	m.heard = now
	elapsed := now.Sub(m.since)
	if elapsed < samplePeriod {
		return
	}
	rate := float64(m.sample) / elapsed.Seconds()
	if m.rate == 0 {
		m.rate = rate
	}
	weight := min(max(0.5, elapsed.Seconds()/quiet.Seconds()), 1)
	m.rate += weight * (rate - m.rate)
	m.busy += elapsed
	m.since, m.sample = now, 0
}

// speed returns the bytes/s that may be expected, and false where nothing is known.
func (m *meter) speed(now time.Time) (float64, bool) {
	rate := m.rate
	if rate == 0 {
		rate = m.planned
	}
	silent := now.Sub(m.heard)
	if !m.asked || silent <= quiet {
		return rate, rate > 0
	}
	return min(max(rate, 1), chunkBytes/silent.Seconds()), true // not even a chunk came
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
