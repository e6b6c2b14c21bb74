package shards

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Buffer is the bytes of a layer in a file, for a receiver that is to go on where an earlier process was killed: parts that
// have Part.Have are verified, and fetched if they are not whole. Where files cannot be mapped it is plain memory.
type Buffer struct {
	Bytes []byte // not to be used after Close or Remove
	name  string
}

// OpenBuffer opens the buffer of a layer by its digest, and reports whether an earlier process left it. What that one has
// stored is in it, as far as the kernel lived on; the rest is zeros. A new file is written in full, so that a full disk is
// an error here and not a signal later.
func OpenBuffer(dir, digest string, bytes int64) (buffer *Buffer, left bool, err error) {
	sum, isSHA256 := strings.CutPrefix(digest, "sha256:")
	if decoded, err := hex.DecodeString(sum); err != nil || !isSHA256 || len(decoded) != 32 {
		return nil, false, fmt.Errorf("buffer of a layer: digest: expected sha256: and 64 digits, got %.80q", digest)
	}
	if bytes <= 0 {
		return nil, false, fmt.Errorf("buffer of %s: bytes: expected at least 1, got %d", digest, bytes)
	}
	buffer = &Buffer{name: filepath.Join(dir, sum)}
	if left, err = buffer.open(bytes); err != nil {
		return nil, false, fmt.Errorf("buffer of %s: %w", digest, err)
	}
	return buffer, left, nil
}

func (b *Buffer) open(bytes int64) (left bool, err error) {
	if err := os.MkdirAll(filepath.Dir(b.name), 0o700); err != nil {
		return false, err
	}
	file, err := os.OpenFile(b.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer file.Close()
	has, err := file.Seek(0, io.SeekEnd)
	if err == nil && has < bytes {
		_, err = io.CopyN(file, zeros{}, bytes-has)
	}
	if err == nil {
		err = file.Truncate(bytes)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(b.name))
	}
	b.Bytes, err = mapped(file, int(bytes))
	return has == bytes, err
}

// zeros never end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// Close lets go of the bytes; the file stays for another process.
func (b *Buffer) Close() error {
	bytes := b.Bytes
	b.Bytes = nil
	return unmapped(bytes)
}

// Remove closes a buffer whose layer is loaded, or is not wanted any more, and removes its file.
func (b *Buffer) Remove() error { return errors.Join(b.Close(), os.Remove(b.name)) }
