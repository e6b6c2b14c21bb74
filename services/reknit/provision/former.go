package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/shared/bus"
)

// formerFile has the keys that services and users had before: their words in the log are read on.
const formerFile = "former.json"

func readFormer(file string) (former map[string][]bus.FormerKey, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &former)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: expected the keys of before by the names of services: %w", file, err)
	}
	return former, nil
}

// keepFormer notes that a key of a service, or of users, was good until now.
func (i *installation) keepFormer(name, key string) error {
	if i.former == nil {
		i.former = map[string][]bus.FormerKey{}
	}
	i.former[name] = append(i.former[name], bus.FormerKey{Key: key, Revoked: time.Now().UTC()})
	data, err := json.MarshalIndent(i.former, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(i.path(operatorFolder, formerFile), data, 0o600)
}
