// Package gossip measures hashicorp/memberlist on the network that the monitor is measured on, in virtual time: its
// goroutines run in a bubble of testing/synctest, and their packets through a transport that follows the schedule.
package gossip

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

var (
	hours = flag.Float64("hours", 0, "of virtual time in which nothing fails, and then in which a host vanishes each ten minutes; 0: none")
	seed  = flag.Uint64("seed", 1, "of all that happens")
)

// view is what the first node of the first site is told, where a monitor might stand.
type view struct{ left map[string]time.Time }

func (v *view) NotifyJoin(*memberlist.Node)   {}
func (v *view) NotifyUpdate(*memberlist.Node) {}
func (v *view) NotifyLeave(n *memberlist.Node) {
	v.left[n.Name] = time.Now()
}

// ofASite is how many nodes of each site are members: with all 25 an hour takes minutes of two cores.
const (
	ofASite = 5
	all     = wan.Sites * ofASite
)

// cluster is so many members with memberlist's settings for a wide area network.
type cluster struct {
	*network
	*view
	members map[int]*memberlist.Memberlist // by node of the schedule
}

// nth is the node of the schedule that is the member of that number.
func nth(member int) int { return member/ofASite*wan.NodesOfASite + member%ofASite }

func newCluster(t *testing.T, seconds float64, calm bool) *cluster {
	c := &cluster{
		network: &network{Schedule: wan.Draw(*seed, seconds, calm), began: time.Now(), drawn: rand.New(rand.NewPCG(*seed, 7))},
		view:    &view{left: map[string]time.Time{}}, members: map[int]*memberlist.Memberlist{},
	}
	for member := range all {
		node := nth(member)
		config := memberlist.DefaultWANConfig()
		config.Name, config.Transport, config.LogOutput = fmt.Sprint("n", node), c.attach(node), io.Discard
		if node == 0 {
			config.Events = c.view
		}
		var err error
		if c.members[node], err = memberlist.Create(config); err != nil {
			t.Fatal(err)
		}
	}
	for member := 1; member < all; member++ {
		if _, err := c.members[nth(member)].Join([]string{fmt.Sprintf("%s:%d", address, basePort)}); err != nil {
			t.Log("join:", err)
		}
	}
	return c
}

func (c *cluster) close() {
	for _, member := range c.members {
		_ = member.Shutdown() // one that was killed has ended
	}
	time.Sleep(time.Minute) // of the bubble's time: a probe that is under way waits for its answer, and may not outlive the bubble
}

func TestHowOftenMemberlistTakesTheLivingForDead(t *testing.T) {
	if *hours == 0 {
		t.Skip("a measurement: see make bench-monitor")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, *hours*3600, false)
		verdicts := 0
		for range int(*hours * 3600) {
			time.Sleep(time.Second)
			synctest.Wait()
			verdicts += len(c.left)
			clear(c.left)
		}
		c.close()
		fmt.Printf("memberlist, WAN: %.4f false verdicts a node-day in %.0f node-days\n",
			float64(verdicts)/all/(*hours/24), all**hours/24)
	})
}

func TestWhenMemberlistFindsThatAHostHasVanished(t *testing.T) {
	if *hours == 0 {
		t.Skip("a measurement: see make bench-monitor")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, *hours*3600, true)
		var found []float64
		for kill := 1; kill <= min(int(*hours*6), all/2); kill++ {
			node := nth(1 + kill%(all-1))
			at := time.Now()
			c.kill(node)
			delete(c.left, fmt.Sprint("n", node))
			_ = c.members[node].Shutdown()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if left, ok := c.left[fmt.Sprint("n", node)]; ok {
				found = append(found, left.Sub(at).Seconds())
			}
		}
		c.close()
		slices.Sort(found)
		fmt.Printf("memberlist, WAN: a vanished host is found after %.1f s (p50), %.1f s (p99), %d of %d\n",
			found[len(found)/2], found[len(found)*99/100], len(found), min(int(*hours*6), all/2))
	})
}
