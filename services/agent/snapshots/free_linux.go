package snapshots

import "syscall"

// free returns how many bytes a folder's disk has left for this user; false where it does not tell.
func free(folder string) (bytes int64, known bool) {
	var disk syscall.Statfs_t
	if syscall.Statfs(folder, &disk) != nil {
		return 0, false
	}
	return int64(disk.Bavail) * disk.Bsize, true
}
