package disk

import "golang.org/x/sys/unix"

func roomOf(dir string) (room, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return room{}, err
	}
	block := uint64(s.Bsize)
	return room{size: s.Blocks * block, free: s.Bavail * block, readOnly: s.Flags&unix.ST_RDONLY != 0}, nil
}
