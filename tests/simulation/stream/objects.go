package stream

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Objects is an object store. An object is a manifest and its chunks; the manifest may be there without them.
type Objects struct {
	server   *Server
	objects  map[string]object
	bytes    int64
	maxBytes int64
	maxAge   time.Duration
	drops    bool    // the oldest objects, where there is no room for one more
	aging    []aging // oldest first
}

// aging is an object that was put at a time, and may have been put again since.
type aging struct {
	name string
	put  time.Time
}

func newObjects(server *Server, maxBytes int64) *Objects {
	return &Objects{server: server, maxBytes: maxBytes, objects: map[string]object{}}
}

type object struct {
	data   any
	bytes  int64
	chunks bool
	put    time.Time
}

// Bound lets the store take nothing beyond so many bytes. Zero means unlimited.
func (o *Objects) Bound(bytes int64) { o.maxBytes = bytes }

// Keep gives the store the bound, the age and the rule of an object store.
func (o *Objects) Keep(store events.ObjectStore) {
	o.maxBytes, o.maxAge, o.drops = store.MaxBytes, store.MaxAge, store.DropsOldest
}

// Remove drops an object, if it is there.
func (o *Objects) Remove(name string) {
	o.bytes -= o.objects[name].bytes
	delete(o.objects, name)
}

// Empty drops all objects, as the store does that makes room for others.
func (o *Objects) Empty() { o.objects, o.aging, o.bytes = map[string]object{}, nil, 0 }

// makeRoom drops the oldest objects until there is room for so many bytes more.
func (o *Objects) makeRoom(bytes int64) {
	for o.drops && len(o.aging) > 0 && o.bytes+bytes > o.maxBytes {
		o.dropOldest()
	}
}

func (o *Objects) dropOldest() {
	oldest := o.aging[0]
	o.aging = o.aging[1:]
	if o.objects[oldest.name].put.Equal(oldest.put) { // it was not put again
		o.Remove(oldest.name)
	}
}

// expire drops objects for their age. The server does so at its own times, the model when something is put.
func (o *Objects) expire(now time.Time) {
	for o.maxAge > 0 && len(o.aging) > 0 && now.Sub(o.aging[0].put) >= o.maxAge {
		o.dropOldest()
	}
}

// Info returns when an object's manifest was put, from whatever replica answers, and whether the leader has its chunks.
// Errors: jetstream.ErrObjectNotFound, ErrNoConnection, ErrNoAnswer.
func (o *Objects) Info(name string, fate Fate) (put time.Time, whole bool, err error) {
	found, err := o.find(name, fate)
	return found.put, found.chunks, err
}

func (o *Objects) find(name string, fate Fate) (object, error) {
	if err := o.server.read(fate); err != nil {
		return object{}, err
	}
	found, isThere := o.objects[name]
	if !isThere || fate == Lagging {
		return object{}, jetstream.ErrObjectNotFound
	}
	return found, nil
}

// Put stores an object. Its chunks are refused if they find no room, and the store drops nothing for them. The manifest is then stored
// without them. Errors: *jetstream.APIError 10077, ErrNoConnection, ErrNoAnswer, jetstream.ErrNoStreamResponse.
func (o *Objects) Put(now time.Time, name string, bytes int64, data any, fate Fate) error {
	if err := o.server.reach(fate); err != nil {
		return err
	}
	if o.server.state == Isolated {
		return ErrNoAnswer
	}
	o.expire(now)
	o.makeRoom(bytes)
	full := o.maxBytes > 0 && o.bytes+bytes > o.maxBytes
	o.bytes -= o.objects[name].bytes // the server drops the chunks of the object before
	o.aging = append(o.aging, aging{name, now})
	if full {
		o.objects[name] = object{put: now}
		return storeFailed("maximum bytes exceeded")
	}
	o.bytes += bytes
	o.objects[name] = object{data: data, bytes: bytes, chunks: true, put: now}
	if fate == Unheard {
		return ErrNoAnswer
	}
	return nil
}

// Get reads an object, from whatever replica answers. A manifest without chunks keeps the reader waiting: ErrNoAnswer.
// Errors: jetstream.ErrObjectNotFound, ErrNoConnection, ErrNoAnswer.
func (o *Objects) Get(name string, fate Fate) (any, error) {
	found, err := o.find(name, fate)
	if err == nil && !found.chunks {
		err = ErrNoAnswer
	}
	return found.data, err
}

// Size returns what the store holds and its bound, in bytes.
func (o *Objects) Size() (held, bound int64) { return o.bytes, o.maxBytes }
