package shards

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Buffer is a layer in a file, for a receiver that is to go on where an earlier process was killed: of the chunks that are
// in it none is fetched again, unless the part that they make is not that of its digest. Where files cannot be mapped it is
// plain memory.
type Buffer struct {
	Bytes  []byte // of the layer; not to be used after Close or Remove
	parts  []Part
	kept   *journal
	name   string
	mapped []byte
}

// OpenBuffer opens the buffer of a layer by its digest. What an earlier process has stored is in it, as far as the kernel
// lived on; where that one cut the layer into other parts, only whole ones are found. A new file is written in full, so
// that a full disk is an error here and not a signal later.
func OpenBuffer(dir, digest string, bytes int64, parts []Part) (*Buffer, error) {
	sum, isSHA256 := strings.CutPrefix(digest, "sha256:")
	if decoded, err := hex.DecodeString(sum); err != nil || !isSHA256 || len(decoded) != 32 {
		return nil, fmt.Errorf("buffer of a layer: digest: expected sha256: and 64 digits, got %.80q", digest)
	}
	if bytes <= 0 {
		return nil, fmt.Errorf("buffer of %s: bytes: expected at least 1, got %d", digest, bytes)
	}
	for i, part := range parts {
		if err := part.check(i, bytes); err != nil {
			return nil, fmt.Errorf("buffer of %s: %w", digest, err)
		}
	}
	buffer := &Buffer{name: filepath.Join(dir, sum), parts: slices.Clone(parts)}
	if err := buffer.open(bytes); err != nil {
		return nil, fmt.Errorf("buffer of %s: %w", digest, err)
	}
	return buffer, nil
}

func (b *Buffer) open(bytes int64) error {
	if err := os.MkdirAll(filepath.Dir(b.name), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(b.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	length := bytes + journalBytes(b.parts)
	had, err := file.Seek(0, io.SeekEnd)
	if err == nil && had < length {
		_, err = io.CopyN(file, zeros{}, length-had)
	}
	if err == nil {
		err = file.Truncate(length)
	}
	if err != nil {
		return errors.Join(err, os.Remove(b.name))
	}
	if b.mapped, err = mapped(file, int(length)); err != nil {
		return err
	}
	b.Bytes = b.mapped[:bytes:bytes]
	b.kept = openJournal(b.mapped[bytes:], b.parts, had >= bytes)
	return nil
}

// Layer is what a transfer fills the buffer by.
func (b *Buffer) Layer() Layer { return Layer{Into: b.Bytes, Parts: b.parts, kept: b.kept} }

// zeros never end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// Close lets go of the bytes; the file stays for another process.
func (b *Buffer) Close() error {
	mapped := b.mapped
	b.Bytes, b.kept, b.mapped = nil, nil, nil
	return unmapped(mapped)
}

// Remove closes a buffer whose layer is loaded, or is not wanted any more, and removes its file.
func (b *Buffer) Remove() error { return errors.Join(b.Close(), os.Remove(b.name)) }
