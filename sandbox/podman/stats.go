package podman

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
)

// clockTicks is USER_HZ, the unit of processor time in /proc: a constant of the kernel's interface.
const clockTicks = 100

// Stats measures a running sandbox: the whole tree of its processes and its tmpfs. It asks the kernel, not podman, and
// takes about a millisecond a large process. A sandbox that has ended gives zeros, one that is gone an error.
//
// Memory is what the processes have alone, their share of what several of them map, and the pages of all tmpfs.
// Pages of a tmpfs that are mapped too are counted once.
func (d *Driver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	c, ok, err := d.look(ctx, id)
	if err != nil {
		return sandbox.Stats{}, d.engineError("stats", err)
	}
	if !ok {
		return sandbox.Stats{}, d.engineError("stats", fmt.Errorf("there is no sandbox %.12s", id))
	}
	if c.State.Pid <= 0 {
		return sandbox.Stats{}, nil
	}
	stats, err := measure(c.State.Pid)
	if err != nil {
		return sandbox.Stats{}, d.engineError("stats", err)
	}
	return stats, nil
}

// measure adds up the tree of pid.
func measure(pid int) (sandbox.Stats, error) {
	procs, err := proctree.Scan()
	if err != nil {
		return sandbox.Stats{}, err
	}
	var s sandbox.Stats
	var own, shared int64
	first, err := proctree.Read(pid)
	if err != nil {
		return s, nil // it has just ended
	}
	for _, p := range append(proctree.Below(procs, pid), first) {
		if p.Dead() {
			continue
		}
		s.Processes++
		s.CPUTime += time.Duration(p.Ticks) * time.Second / clockTicks
		m, err := readRollup(p.PID)
		if err != nil {
			m.own = p.Pages * int64(os.Getpagesize()) // what may not be looked into is counted whole
		}
		own += m.own
		shared += m.shared
	}
	memory, err := tmpfsBytes(pid)
	if err != nil && !gone(err) {
		return s, err
	}
	s.MemoryBytes = own + max(shared, memory)
	return s, nil
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// memoryUse is one process's share of memory in bytes: of its own and of files, swapped pages too, and of shared
// memory.
type memoryUse struct{ own, shared int64 }

func readRollup(pid int) (memoryUse, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memoryUse{}, err
	}
	defer f.Close()
	return parseRollup(f)
}

// parseRollup reads /proc/PID/smaps_rollup. Pss_Anon, Pss_File and Pss_Shmem are the parts of Pss since Linux 5.4.
func parseRollup(r io.Reader) (memoryUse, error) {
	var m memoryUse
	found := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return memoryUse{}, fmt.Errorf("smaps_rollup: %w", err)
		}
		switch fields[0] {
		case "Pss_Anon:", "Pss_File:", "SwapPss:":
			m.own += kb << 10
			found = true
		case "Pss_Shmem:":
			m.shared += kb << 10
		}
	}
	if err := lines.Err(); err != nil {
		return memoryUse{}, err
	}
	if !found {
		return memoryUse{}, errors.New("smaps_rollup has no Pss_Anon")
	}
	return m, nil
}

// tmpfsBytes adds up what every tmpfs of a sandbox holds.
func tmpfsBytes(pid int) (int64, error) {
	mountinfo, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return 0, err
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(root)
	var total int64
	for _, target := range tmpfsTargets(string(mountinfo)) {
		fd, err := openInside(root, target)
		if err != nil {
			continue // hidden under another mount
		}
		var fs unix.Statfs_t
		err = unix.Fstatfs(fd, &fs)
		unix.Close(fd)
		if err == nil && fs.Type == unix.TMPFS_MAGIC {
			total += int64(fs.Blocks-fs.Bfree) * fs.Bsize
		}
	}
	return total, nil
}

// tmpfsTargets lists the mount points of whole tmpfs, each file system once. A bind mount of a part of one, such as
// the run directory, is the host's.
func tmpfsTargets(mountinfo string) []string {
	var targets []string
	seen := make(map[string]bool)
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := 6
		for dash < len(fields) && fields[dash] != "-" {
			dash++
		}
		if dash+1 >= len(fields) || fields[dash+1] != "tmpfs" || fields[3] != "/" || seen[fields[2]] {
			continue
		}
		target := unescapeMount(fields[4])
		if under := path.Clean(target); under == "/dev" || below(under, "/proc") || below(under, "/sys") {
			continue // devices and masks, which hold nothing of the sandbox's
		}
		seen[fields[2]] = true
		targets = append(targets, target)
	}
	return targets
}
