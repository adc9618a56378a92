package podman

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a look for loose memory.
const (
	looseGrowth = 16 << 20 // of the machine's shared memory, after which a Glance looks again
	looseShare  = 4        // times of what a look takes, that a Glance lets pass before the next
	maxLooseFDs = 200_000  // descriptors looked at in one sandbox; with more, all that the machine's shared memory grew by is its
)

// anonymousDevice gives the device of the kernel's own tmpfs, in which files of memfd_create and shared memory without
// a name live. It is the same for the whole machine.
func anonymousDevice() (uint64, error) {
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Dev, err
}

// scanIfGrown looks for loose memory where the machine's shared memory says that there may be more of it. v.mu is held.
func (v *view) scanIfGrown(all []usage, shared int64) {
	if shared < v.level {
		v.level = shared
	}
	if shared-v.level < looseGrowth || time.Since(v.scanned) < looseShare*v.took {
		return
	}
	v.scanLoose(all)
	v.level = shared
}

// scanLoose finds the memory that no mount of the sandbox's and no process shows: files of memfd_create and deleted
// ones that are open, and tmpfs that the agent mounted in a namespace of its own, or holds by a descriptor alone. It
// sets v.loose and v.files. v.mu is held.
func (v *view) scanLoose(all []usage) {
	began := time.Now()
	s := looseScan{view: v, files: map[fileID]bool{}, systems: map[uint64]bool{}, namespaces: map[uint64]bool{v.mnt: true}}
	for _, u := range all {
		s.mounts(u.at)
		s.descriptors(u.at)
	}
	for _, u := range all {
		if u.threads > 1 {
			s.threadsOf(u)
		}
	}
	if s.fds >= maxLooseFDs { // whoever has so many may hide something behind them
		var sys unix.Sysinfo_t
		if unix.Sysinfo(&sys) == nil {
			s.bytes = max(s.bytes, sharedMemory(&sys)-v.base-v.ownTmpfs())
		}
	}
	v.loose, v.files, v.scanned, v.took = s.bytes, s.files, began, time.Since(began)
}

// A looseScan is one look.
type looseScan struct {
	*view
	bytes      int64
	fds        int
	files      map[fileID]bool // counted one by one
	systems    map[uint64]bool // tmpfs that were counted whole
	namespaces map[uint64]bool // of mounts, that were looked at
}

// threadsOf looks at the threads of a process besides the one that was looked at: each may have taken a mount namespace
// and a table of open files of its own (unshare).
func (s *looseScan) threadsOf(u usage) {
	tids, err := s.threads(u.pid)
	if err != nil {
		return
	}
	for _, tid := range tids {
		at := fmt.Sprintf("%d/task/%d", u.pid, tid)
		if tid == u.pid || at == u.at {
			continue
		}
		s.mounts(at)
		s.descriptors(at)
	}
}

// mounts counts the tmpfs of a process's or thread's mount namespace, if that is none of those seen.
func (s *looseScan) mounts(at string) {
	var st unix.Stat_t
	if unix.Fstatat(s.proc, at+"/ns/mnt", &st, 0) != nil || s.namespaces[st.Ino] {
		return
	}
	s.namespaces[st.Ino] = true
	mountinfo, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/%s/mountinfo", s.proc, at))
	if err != nil {
		return
	}
	root, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d/%s/root", s.proc, at), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(root)
	for _, m := range tmpfsMounts(string(mountinfo)) {
		if fd, err := openInside(root, m.target); err == nil {
			s.system(fd)
			unix.Close(fd)
		}
	}
}

// system counts the tmpfs that fd lies on, once, unless it is one that is counted anyway or the host's.
func (s *looseScan) system(fd int) {
	dev, ok := tmpfsDevice(fd)
	if !ok || s.ownDevice(dev) || s.home[dev] || s.systems[dev] || dev == s.anon {
		return
	}
	s.systems[dev] = true
	s.bytes += tmpfsUsed(fd)
}

// descriptors counts what a process or thread holds open.
func (s *looseScan) descriptors(at string) {
	fd, err := unix.Openat(s.proc, at+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	dir := os.NewFile(uintptr(fd), "fd")
	defer dir.Close()
	for s.fds < maxLooseFDs {
		names, err := dir.Readdirnames(1000)
		if err != nil || len(names) == 0 {
			return
		}
		for _, name := range names {
			s.fds++
			s.descriptor(int(dir.Fd()), at, name)
		}
	}
}

func (s *looseScan) descriptor(dir int, at, name string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, 0) != nil {
		return
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind != unix.S_IFREG && kind != unix.S_IFDIR:
	case st.Dev == s.anon:
		id := fileID{st.Dev, st.Ino}
		if !s.files[id] {
			s.files[id] = true
			s.bytes += st.Blocks * 512
		}
	case unix.Major(st.Dev) != 0 || s.ownDevice(st.Dev) || s.home[st.Dev] || s.systems[st.Dev]:
		// on a disk, or counted
	default:
		if fd, err := unix.Open(s.fdPath(at, name), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			s.system(fd)
			unix.Close(fd)
		}
	}
}
