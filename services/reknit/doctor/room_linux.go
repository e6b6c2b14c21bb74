package doctor

import "syscall"

// room returns how many bytes a directory's disk has left for this user, and in all.
func room(directory string) (free, whole int64, err error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(directory, &disk); err != nil {
		return 0, 0, err
	}
	return int64(disk.Bavail) * disk.Bsize, int64(disk.Blocks) * disk.Bsize, nil
}
