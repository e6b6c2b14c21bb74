package bus

import (
	"os"
	"path/filepath"
	"sync"
)

// renewed is what the folder of a kit tells by now. The key of a service that was revoked is another, and whoever provisions writes it into
// the kits of all others, which may be connected.
type renewed struct {
	folder string
	mutex  sync.Mutex
	read   os.FileInfo // of the file as it was read; nil: it was not
	Identity
}

// known is what the kit told when it was last read.
func (k kit) known() Identity {
	if k.renewed == nil {
		return k.Identity
	}
	k.renewed.mutex.Lock()
	defer k.renewed.mutex.Unlock()
	return k.renewed.Identity
}

// look reads the kit again if it was written since, and reports whether it was. A file that cannot be read, or is another's, counts for
// nothing.
func (r *renewed) look() bool {
	if r == nil {
		return false
	}
	file, err := os.Stat(filepath.Join(r.folder, IdentityFile))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil || r.read != nil && os.SameFile(file, r.read) && file.ModTime().Equal(r.read.ModTime()) {
		return false
	}
	identity, err := ReadIdentity(r.folder)
	if err != nil || identity.Key != r.Key {
		return false
	}
	r.read, r.Identity = file, identity
	return true
}
