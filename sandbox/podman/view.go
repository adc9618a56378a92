package podman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// A view looks into one running sandbox from outside: its processes, through its own /proc, which lists no others, and
// what they keep in memory. It is opened before the sandbox's command runs, and holds what it looks at open, so that
// nothing the agent does in there changes what is seen, and no measurement asks podman.
type view struct {
	pid  int
	init *procHandle
	proc int             // descriptor of the sandbox's /proc
	mnt  uint64          // its mount namespace
	anon uint64          // see anonymousDevice
	home map[uint64]bool // devices of what the host mounted, which is not the sandbox's memory
	own  map[uint64]int  // a descriptor of each tmpfs of the sandbox's own, by its device
	at   map[string]int  // the same descriptors by where they are mounted
	cpus []int           // the processors it is bound to; none when it is not

	mu      sync.Mutex
	closed  bool
	base    int64           // the machine's shared memory when the view was opened
	loose   int64           // bytes that no mounted tmpfs holds and no process need have mapped; of the last look (scanLoose)
	files   map[fileID]bool // that are counted in loose one by one
	level   int64           // the machine's shared memory at that look
	scanned time.Time
	took    time.Duration
}

// openView opens a view of the sandbox whose first process is pid.
func openView(pid int) (v *view, err error) {
	v = &view{pid: pid, proc: -1, home: map[uint64]bool{}, own: map[uint64]int{}, at: map[string]int{}}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if v.anon, err = anonymousDevice(); err != nil {
		return v, err
	}
	var sys unix.Sysinfo_t
	if err = unix.Sysinfo(&sys); err != nil {
		return v, err
	}
	v.base = sharedMemory(&sys)
	if v.init, err = openProc(pid); err != nil {
		return v, err
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return v, err
	}
	defer unix.Close(root)
	if v.proc, err = unix.Openat2(root, "proc", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}); err != nil {
		return v, err
	}
	var st unix.Stat_t
	if err = unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid), &st); err != nil {
		return v, err
	}
	v.mnt = st.Ino
	mountinfo, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return v, err
	}
	for _, m := range tmpfsMounts(string(mountinfo)) {
		fd, oerr := openInside(root, m.target)
		if oerr != nil {
			continue // hidden under another mount
		}
		dev, isTmpfs := tmpfsDevice(fd)
		switch {
		case isTmpfs && m.own && !v.ownDevice(dev):
			v.own[dev], v.at[m.target] = fd, fd
			continue
		case isTmpfs:
			v.home[dev] = true
		}
		unix.Close(fd)
	}
	for dev := range v.own {
		delete(v.home, dev)
	}
	return v, nil
}

// tmpfsDevice gives the device of what fd lies on, and whether that is a tmpfs.
func tmpfsDevice(fd int) (dev uint64, ok bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return st.Dev, true
}

func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	if v.init != nil {
		v.init.Close()
	}
	if v.proc >= 0 {
		unix.Close(v.proc)
	}
	for _, fd := range v.own {
		unix.Close(fd)
	}
}

// kill ends the first process, and the kernel all others with it. One that has ended is no error.
func (v *view) kill() {
	_ = v.init.signal(unix.SIGKILL) // a view that was closed meanwhile has nothing left to end
}

// pids lists the sandbox's processes by their numbers inside.
func (v *view) pids() ([]int, error) { return v.numbers(".") }

// numbers lists what in a folder of the sandbox's /proc is named by a number.
func (v *view) numbers(in string) ([]int, error) {
	fd, err := unix.Openat(v.proc, in, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), "proc")
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// threads lists the threads of a process by their numbers inside.
func (v *view) threads(pid int) ([]int, error) { return v.numbers(strconv.Itoa(pid) + "/task") }

// read reads a file of a process or a thread in the sandbox's /proc into buf, as much as fits.
func (v *view) read(at, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(v.proc, at+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// A usage is what one process has: its pages of memory, and processor time in clock ticks.
type usage struct {
	pid     int
	at      string // where /proc shows what it has: "PID", or "PID/task/TID" where its first thread has ended
	threads int
	ticks   uint64
	pages   int64
}

// usages reads /proc/PID/stat of every live process.
func (v *view) usages() ([]usage, error) {
	pids, err := v.pids()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 1024)
	all := make([]usage, 0, len(pids))
	for _, pid := range pids {
		line, err := v.read(strconv.Itoa(pid), "stat", buf)
		if err != nil {
			continue // it has ended since
		}
		u, alive := parseStat(line)
		u.pid, u.at = pid, strconv.Itoa(pid)
		if !alive && (u.threads < 2 || !v.follow(&u, buf)) {
			continue
		}
		all = append(all, u)
	}
	return all, nil
}

// follow finds a process whose first thread has ended while others run: /proc shows it as a zombie without memory, open
// files and namespaces, all of which are there still, under any of the others.
func (v *view) follow(u *usage, buf []byte) bool {
	tids, err := v.threads(u.pid)
	if err != nil {
		return false
	}
	for _, tid := range tids {
		at := fmt.Sprintf("%d/task/%d", u.pid, tid)
		line, err := v.read(at, "stat", buf)
		if err != nil {
			continue
		}
		if t, alive := parseStat(line); alive {
			u.at, u.pages = at, t.pages
			return true
		}
	}
	return false
}

// parseStat reads what a usage needs of /proc/PID/stat, or of a thread's; alive is false for what cannot be read or is
// dead.
func parseStat(line []byte) (u usage, alive bool) {
	// The name, in parentheses, may hold anything; the fields after its last parenthesis are plain (proc(5)).
	f := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return u, false
	}
	num := func(field int) uint64 { // numbered as in proc(5)
		n, _ := strconv.ParseUint(string(f[field-3]), 10, 64)
		return n
	}
	u = usage{threads: int(num(20)), ticks: num(14) + num(15), pages: int64(num(24))}
	return u, f[0][0] != 'Z' && f[0][0] != 'X'
}

// swapped gives the bytes of a process that are on swap.
func (v *view) swapped(at string, buf []byte) int64 {
	status, err := v.read(at, "status", buf)
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(status, []byte("\nVmSwap:"))
	if !found {
		return 0
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kb << 10
}

// ownTmpfs adds up what the sandbox's own tmpfs hold.
func (v *view) ownTmpfs() int64 {
	var total int64
	for _, fd := range v.own {
		total += tmpfsUsed(fd)
	}
	return total
}

func tmpfsUsed(fd int) int64 {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize
}

// Glance measures a running sandbox quickly: some ten microseconds a process. Shared memory counts once for each
// process that maps it, and once more where a tmpfs holds it. What is in memory and mapped nowhere is looked for only
// when the machine's shared memory has grown.
func (d *Driver) Glance(ctx context.Context, id string) (sandbox.Stats, error) {
	return d.measured(ctx, id, (*view).glance)
}

func (v *view) glance() (sandbox.Stats, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return sandbox.Stats{}, nil
	}
	all, err := v.usages()
	if err != nil {
		return sandbox.Stats{}, notGone(err)
	}
	var sys unix.Sysinfo_t
	if err := unix.Sysinfo(&sys); err != nil {
		return sandbox.Stats{}, err
	}
	v.scanIfGrown(all, sharedMemory(&sys))
	s := sandbox.Stats{Processes: len(all), MemoryBytes: v.ownTmpfs() + v.loose}
	var buf []byte
	if sys.Totalswap > sys.Freeswap {
		buf = make([]byte, 4096)
	}
	for _, u := range all {
		s.CPUTime += time.Duration(u.ticks) * time.Second / clockTicks
		s.MemoryBytes += u.pages * int64(os.Getpagesize())
		if buf != nil {
			s.MemoryBytes += v.swapped(u.at, buf)
		}
	}
	return s, nil
}

// sharedMemory gives the machine's shared memory, every tmpfs counted in.
func sharedMemory(sys *unix.Sysinfo_t) int64 { return int64(sys.Sharedram) * int64(max(1, sys.Unit)) }

// notGone is err, unless that says that what was looked at has ended.
func notGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// viewOf gives the view of a sandbox, the one that Start opened where there is one, and what to call when done with
// it. The view is nil for a sandbox that has ended; one that is gone is an error.
func (d *Driver) viewOf(ctx context.Context, id string) (*view, func(), error) {
	if v := d.views.get(id); v != nil {
		return v, func() {}, nil
	}
	c, ok, err := d.look(ctx, id)
	if err != nil {
		return nil, nil, d.engineError("stats", err)
	}
	if !ok {
		return nil, nil, d.engineError("stats", fmt.Errorf("there is no sandbox %.12s", id))
	}
	if c.State.Pid <= 0 {
		return nil, nil, nil
	}
	v, err := openView(c.State.Pid)
	if err != nil {
		if gone(err) {
			return nil, nil, nil
		}
		return nil, nil, d.engineError("stats", err)
	}
	return v, v.close, nil
}

// views are those of the sandboxes that this Driver started and has not removed.
type views struct {
	mu sync.Mutex
	by map[string]*view
}

func (s *views) get(id string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[id]
}

func (s *views) add(id string, v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*view{}
	}
	s.by[id] = v
}

func (s *views) drop(id string) {
	s.mu.Lock()
	v := s.by[id]
	delete(s.by, id)
	s.mu.Unlock()
	if v != nil {
		v.close()
	}
}

func (s *views) dropAll() {
	s.mu.Lock()
	all := s.by
	s.by = nil
	s.mu.Unlock()
	for _, v := range all {
		v.close()
	}
}
