package agentd

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/local"
)

// hostNode is another one for each agent of each host: the host's name, and the number of this process. Containers that share a
// host's name each number their processes from 1, so there the number of their numbering follows.
func hostNode() string { return hostWord() + "-" + strconv.Itoa(os.Getpid()) + ofNumbering() }

// firstNumbering is the inode of a machine's own process numbers (linux/proc_ns.h, PROC_PID_INIT_INO).
const firstNumbering = 0xEFFFFFFC

// ofNumbering tells apart who numbers processes beside others on one machine; empty where it is the machine itself, or not known.
func ofNumbering() string {
	about, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	stat, is := about.Sys().(*syscall.Stat_t)
	if !is || stat.Ino == firstNumbering {
		return ""
	}
	return fmt.Sprintf("-%x", uint32(stat.Ino))
}

// steadyNode is another one for each agent of a host, and the same for one that is started again: the host's name and
// the least number that no other agent has there. release gives it back.
func steadyNode(cluster string) (node string, release func()) {
	for number := 1; number <= local.MostTrainers; number++ {
		node := fmt.Sprintf("%s-%d%s", hostWord(), number, ofNumbering())
		path := filepath.Join(os.TempDir(), "reknit-node-"+cluster+"-"+node)
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			continue // another user has it, or put something else there
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return node, func() { lock.Close() }
		}
		lock.Close()
	}
	return hostNode(), func() {}
}

// hostWord is the host's name, as far as an id may have it.
func hostWord() string {
	host, _ := os.Hostname() // without a name a number must do
	return wordOf(host)
}

const (
	mostHost    = 46 // bytes; two numbers follow
	hostDigits  = 8  // of the digest that stands for what a name has too much
	longestTail = 23 // bytes of the end of a long name: it tells pods of one job apart, and the beginning the jobs
)

// wordOf returns an id for each host name. Characters that an id cannot have become dashes, and a long name keeps its beginning and its
// end. Both would make equal what is not: where a name is changed otherwise than by dots, a digest of it tells it from others.
func wordOf(host string) string {
	word := strings.Map(func(r rune) rune {
		if events.Token(string(r)) {
			return r
		}
		return '-'
	}, host)
	if len(word) <= mostHost && word == strings.ReplaceAll(host, ".", "-") {
		return word
	}
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(host)))[:hostDigits]
	if len(word) <= mostHost-hostDigits-1 {
		return word + "-" + digest
	}
	head := mostHost - longestTail - hostDigits - 2
	return word[:head] + "-" + digest + "-" + word[len(word)-longestTail:]
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address) // an address without a port is no host either
	return host
}

// freePort is one of a host of this machine that nobody listens on at this moment.
func freePort(host string) (string, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("no free port: %w", err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
