package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/bench/figures"
)

const (
	storeBucket = "shards-bench"
	libBucket   = "library"
	partBytes   = 8 << 20
)

// served is what the other process says at its start.
type served struct {
	Store, TCP string   // where it listens
	Library    string   // a server with a bucket in memory, which the client library alone fills
	Secured    string   // a store like the first, over TLS; empty where there are no kits
	Whole      string   // digest of the object as one
	Parts      []string // digests of its parts
}

// giver is the other process.
type giver struct {
	served
	data    []byte
	store   *shards.Store
	library *library
}

// answer gives an object by a shard store, by a bucket of the library's and by plain TCP, until its input ends. Each line of
// input is a command, which is answered with a line, or several.
func answer(ctx context.Context, size int, kits string) (err error) {
	g := &giver{data: content(size)}
	g.Whole = events.Digest(g.data)
	for part := range slices.Chunk(g.data, partBytes) {
		g.Parts = append(g.Parts, events.Digest(part))
	}
	if g.store, err = g.offer(ctx, shards.StoreConfig{}); err != nil {
		return err
	}
	defer g.store.Close()
	g.Store = g.store.URL()
	if kits != "" {
		secured, err := g.secured(ctx, kits)
		if err != nil {
			return err
		}
		defer secured.Close()
		g.Secured = secured.URL()
	}
	if g.library, err = openLibrary(ctx); err != nil {
		return err
	}
	defer g.library.close()
	g.Library = g.library.server.ClientURL()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	g.TCP = listener.Addr().String()
	go serveTCP(listener, g.data)
	if err := json.NewEncoder(os.Stdout).Encode(g.served); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := g.obey(ctx, lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

func (g *giver) obey(ctx context.Context, command string) error {
	switch command {
	case "spent":
		fmt.Println(figures.Spent().Seconds())
	case "beyond":
		fmt.Println(beyond(len(g.data)))
	case "put":
		for i, digest := range g.Parts {
			if err := g.library.put(ctx, digest, g.part(i)); err != nil {
				return err
			}
			fmt.Println(digest)
		}
	}
	return nil
}

func (g *giver) part(i int) []byte { return g.data[i*partBytes : min((i+1)*partBytes, len(g.data))] }

// offer has a store give the object in parts.
func (g *giver) offer(ctx context.Context, config shards.StoreConfig) (*shards.Store, error) {
	config.Bucket = storeBucket
	store, err := shards.Serve(ctx, config)
	if err != nil {
		return nil, err
	}
	for i, digest := range g.Parts {
		store.Offer(digest, g.part(i))
	}
	return store, nil
}

// want asks for a part until it is there.
func want(ctx context.Context, reader *nats.Conn, digest string) error {
	for {
		answer, err := reader.RequestWithContext(ctx, "shards.want."+storeBucket, []byte(digest))
		if err != nil {
			return err
		}
		switch status := answer.Header.Get("Status"); status {
		case "":
			return nil
		case "429": // others are put first
		default:
			return fmt.Errorf("want of %s: status %s", digest, status)
		}
	}
}

func content(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	return data
}

// serveTCP sends the object to whoever asks with a byte.
func serveTCP(listener net.Listener, data []byte) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
			_, _ = conn.Write(data) // the other side reports what is missing
		}
		conn.Close()
	}
}

// other is the process that serves.
type other struct {
	served
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func start(size int, kits string) (*other, error) {
	command := exec.Command(os.Args[0], "-serve", "-bytes", strconv.Itoa(size), "-kits", kits)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	o := &other{command: command, in: in, out: bufio.NewReader(out)}
	line, err := o.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the other process: %w", err)
	}
	return o, json.Unmarshal(line, &o.served)
}

func (o *other) stop() error {
	o.in.Close()
	return o.command.Wait()
}

// say gives a command and returns the first line of the answer.
func (o *other) say(command string) (string, error) {
	if _, err := fmt.Fprintln(o.in, command); err != nil {
		return "", err
	}
	return o.line()
}

func (o *other) line() (string, error) {
	line, err := o.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// tell gives a command that is answered with a number.
func (o *other) tell(command string) (float64, error) {
	line, err := o.say(command)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(line, 64)
}
