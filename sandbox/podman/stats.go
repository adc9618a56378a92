package podman

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// clockTicks is USER_HZ, the unit of processor time in /proc: a constant of the kernel's interface.
const clockTicks = 100

// Stats measures a running sandbox: the whole tree of its processes, and the memory that no process has. It asks the
// kernel, not podman, and takes about a millisecond for each hundred megabytes. A sandbox that has ended gives zeros,
// one that is gone an error.
//
// Memory is what the kernel could not take back by itself: what the processes have alone, swapped pages too, their
// share of what several of them map, every tmpfs, those in mount namespaces of the agent's own too, and files in memory
// that are open. Pages of a tmpfs or of such a file that are mapped too are counted once. Pages of files on disk are
// not counted: they are a cache, mostly of images that all sandboxes share. docs/handlers/security.md says what cannot
// be seen this way.
func (d *Driver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	return d.measured(ctx, id, (*view).measure)
}

// measured looks at a running sandbox by how.
func (d *Driver) measured(ctx context.Context, id string, how func(*view) (sandbox.Stats, error)) (sandbox.Stats, error) {
	v, done, err := d.viewOf(ctx, id)
	if err != nil || v == nil {
		return sandbox.Stats{}, err
	}
	defer done()
	s, err := how(v)
	if err != nil {
		return s, d.engineError("stats", err)
	}
	return s, nil
}

// Up to sharedCoarse of shared memory, what is mapped and what files hold are taken for the same. Above, the maps of
// every process with more than sharedDetail are looked at one by one, and what the others map counts by itself. Either
// way the result is wrong by no more than these.
const (
	sharedCoarse = 16 << 20
	sharedDetail = 256 << 10
)

func (v *view) measure() (sandbox.Stats, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return sandbox.Stats{}, nil
	}
	all, err := v.usages()
	if err != nil {
		return sandbox.Stats{}, notGone(err)
	}
	if time.Since(v.scanned) >= looseShare*v.took {
		v.scanLoose(all)
	}
	s := sandbox.Stats{Processes: len(all)}
	held := v.ownTmpfs() + v.loose
	buf := make([]byte, 8<<10)
	mapped := make([]int64, len(all))
	var own, shared int64
	for i, u := range all {
		s.CPUTime += time.Duration(u.ticks) * time.Second / clockTicks
		m, err := v.rollup(u.at, buf)
		if err != nil {
			m.own = u.pages * int64(os.Getpagesize()) // what may not be looked into is counted whole
		}
		own += m.own
		shared += m.shared
		mapped[i] = m.shared
	}
	if shared <= sharedCoarse {
		s.MemoryBytes = own + max(shared, held)
		return s, nil
	}
	for i, u := range all {
		if mapped[i] > sharedDetail {
			if other, err := v.unnamed(u.at, v.files); err == nil {
				mapped[i] = other
			}
		}
		held += mapped[i]
	}
	s.MemoryBytes = own + held
	return s, nil
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// memoryUse is one process's share of memory in bytes: of its own, swapped pages too, and of shared memory.
type memoryUse struct{ own, shared int64 }

func (v *view) rollup(at string, buf []byte) (memoryUse, error) {
	text, err := v.read(at, "smaps_rollup", buf)
	if err != nil {
		return memoryUse{}, err
	}
	return parseRollup(text)
}

// parseRollup reads /proc/PID/smaps_rollup. Pss_Anon and Pss_Shmem are parts of Pss since Linux 5.4.
func parseRollup(text []byte) (memoryUse, error) {
	var m memoryUse
	found := false
	for line := range bytes.Lines(text) {
		name, bytes, ok := smapsLine(line)
		if !ok {
			continue
		}
		switch name {
		case "Pss_Anon:", "SwapPss:":
			m.own += bytes
			found = true
		case "Pss_Shmem:":
			m.shared += bytes
		}
	}
	if !found {
		return memoryUse{}, errors.New("smaps_rollup has no Pss_Anon")
	}
	return m, nil
}

// smapsLine reads a line such as "Pss_Anon:   12 kB".
func smapsLine(line []byte) (name string, n int64, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) != 3 || string(fields[2]) != "kB" {
		return "", 0, false
	}
	kb, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return string(fields[0]), kb << 10, err == nil
}

// A fileID names a file: the device of its file system and its number there.
type fileID struct{ dev, ino uint64 }

// maxSmaps bounds the lines that are read of one process's maps; with more, all that it shares counts as its own.
const maxSmaps = 2_000_000

// unnamed gives a process's share of the shared memory that no file shows which is counted already: shared memory
// without a name, and files that only maps hold.
func (v *view) unnamed(at string, counted map[fileID]bool) (int64, error) {
	fd, err := unix.Openat(v.proc, at+"/smaps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), "smaps")
	defer f.Close()
	var total int64
	var file fileID
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan(); n++ {
		if n > maxSmaps {
			return 0, errors.New("smaps has too many lines")
		}
		if id, ok := mapLine(lines.Bytes()); ok {
			file = id
		} else if name, bytes, ok := smapsLine(lines.Bytes()); ok && name == "Pss:" && file.dev == v.anon && !counted[file] {
			total += bytes
		}
	}
	return total, lines.Err()
}

// mapLine reads the first line of a map, such as "7f00-7f10 rw-s 00000000 00:05 123  /memfd:x (deleted)".
func mapLine(line []byte) (fileID, bool) {
	fields := bytes.Fields(line)
	if len(fields) < 5 || len(fields[1]) != 4 || bytes.IndexByte(fields[0], '-') < 0 {
		return fileID{}, false
	}
	major, minor, found := strings.Cut(string(fields[3]), ":")
	a, errA := strconv.ParseUint(major, 16, 32)
	b, errB := strconv.ParseUint(minor, 16, 32)
	ino, errC := strconv.ParseUint(string(fields[4]), 10, 64)
	if !found || errA != nil || errB != nil || errC != nil {
		return fileID{}, false
	}
	return fileID{unix.Mkdev(uint32(a), uint32(b)), ino}, true
}

func (v *view) ownDevice(dev uint64) bool {
	_, ok := v.own[dev]
	return ok
}

// A tmpfsMount is the mount point of a tmpfs; own when the whole of it is mounted there. A bind mount of a part of
// one, such as the run directory, is the host's.
type tmpfsMount struct {
	target string
	own    bool
}

// tmpfsMounts lists the mount points of tmpfs in a mountinfo.
func tmpfsMounts(mountinfo string) []tmpfsMount {
	var all []tmpfsMount
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := 6
		for dash < len(fields) && fields[dash] != "-" {
			dash++
		}
		if dash+1 >= len(fields) || fields[dash+1] != "tmpfs" {
			continue
		}
		target := unescapeMount(fields[4])
		if under := path.Clean(target); under == "/dev" || below(under, "/proc") || below(under, "/sys") {
			continue // devices and masks, which hold nothing of the sandbox's
		}
		all = append(all, tmpfsMount{target, fields[3] == "/"})
	}
	return all
}

// fdPath is where the file behind a descriptor of a sandbox's process is found from here.
func (v *view) fdPath(at, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s/fd/%s", v.proc, at, name)
}
