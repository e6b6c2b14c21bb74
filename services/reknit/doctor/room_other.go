//go:build !linux

package doctor

import "errors"

// room is not known here.
func room(string) (free, whole int64, err error) {
	return 0, 0, errors.New("how full it is cannot be told on this system")
}
