package links

import "testing"

// Three packets of 1,448 bytes and one of 100, with 20 bytes of IP and 32 of TCP before each.
func TestALargeSegmentCountsAsThePacketsItStandsFor(t *testing.T) {
	const headers = 20 + 32
	read := make([]byte, virtioHeader+headers+3*1448+100)
	if got, want := wireBytes(read), headers+3*1448+100; got != want {
		t.Errorf("one packet: %d bytes, want %d", got, want)
	}
	read[1] = 1                          // TCP over IPv4
	read[4], read[5] = 1448&255, 1448>>8 // little-endian, as every machine we run on
	read[6] = 20
	read[virtioHeader+20+12] = 8 << 4
	if got, want := wireBytes(read), 4*headers+3*1448+100; got != want {
		t.Errorf("four packets: %d bytes, want %d", got, want)
	}
}
