package sessions

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/fault"
)

// Bounds of the machine below which runs are ended, whatever their own limits are.
const (
	MinFreeMemory = 512 << 20 // available on the machine, or a thirty-second of its memory if that is less
	MinFreeDisk   = 16 << 20  // on the file system of Handler's state, or a hundredth of it if that is less
	WarnFreeDisk  = 256 << 20 // the same, at which runs are told; a twentieth if that is less
	machineEvery  = time.Second
	machineGrace  = 3 * time.Second // between two runs that are ended: memory takes a moment to come back
)

// A machineWatch sees when the machine itself runs out of what no run's limit bounds: memory that cannot be laid to
// anyone, and the disk that audit and logs are written to. It is shared by all runs, and asks the kernel once a second,
// however many there are.
type machineWatch struct {
	stateDir string
	memory   func() (available, total int64, err error)
	disk     func(dir string) (free, total int64, err error)

	mu       sync.Mutex
	looked   time.Time // protected by mu
	ended    time.Time // protected by mu; when a run was ended for it last
	noMemory int64     // protected by mu; what was left when it was too little, else -1
	noDisk   int64     // protected by mu; the same
	lowDisk  int64     // protected by mu; what is left when it is little, else -1
}

func newMachineWatch(stateDir string) *machineWatch {
	return &machineWatch{stateDir: stateDir, memory: memoryLeft, disk: diskLeft, noMemory: -1, noDisk: -1, lowDisk: -1}
}

// look refreshes what is known.
func (m *machineWatch) look() {
	if time.Since(m.looked) < machineEvery {
		return
	}
	m.looked = time.Now()
	m.noMemory, m.noDisk, m.lowDisk = -1, -1, -1
	if free, total, err := m.memory(); err == nil && free < min(MinFreeMemory, total/32) {
		m.noMemory = free
	}
	if free, total, err := m.disk(m.stateDir); err == nil {
		if free < min(MinFreeDisk, total/100) {
			m.noDisk = free
		}
		if free < min(WarnFreeDisk, total/20) {
			m.lowDisk = free
		}
	}
}

// check tells a run whether it must end, and gives what it should be warned of. biggest says whether no other run uses
// more memory.
func (m *machineWatch) check(biggest func() bool) (end *limitError, warning string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	if m.lowDisk >= 0 {
		warning = fmt.Sprintf("disk: %s is left where Handler keeps its state; with nothing left every run is ended", agents.Amount(m.lowDisk, 0))
	}
	switch {
	case m.noDisk >= 0:
		return &limitError{Limit: "disk", Why: agents.Amount(m.noDisk, 0) + " is left where Handler keeps its state, too little to write down what happens",
			Hint: "free some space: df -h " + m.stateDir}, warning
	case m.noMemory >= 0 && time.Since(m.ended) >= machineGrace && biggest():
		m.ended = time.Now()
		return &limitError{Limit: "machine", Why: "the whole machine has " + agents.Amount(m.noMemory, 0) + " of memory left, and no run uses more than this one",
			Hint: "see who uses it: ps aux --sort=-rss | head, handler ps"}, warning
	}
	return nil, warning
}

// refuse says why no run can start, or nil.
func (m *machineWatch) refuse() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	switch {
	case m.noDisk >= 0:
		return fault.New(fault.Failed, "free some space: df -h "+m.stateDir, "%s is left where Handler keeps its state, too little to write down what a run does", agents.Amount(m.noDisk, 0))
	case m.noMemory >= 0:
		return fault.New(fault.Failed, "see who uses it: ps aux --sort=-rss | head, handler ps", "the machine has %s of memory left, too little for another run", agents.Amount(m.noMemory, 0))
	}
	return nil
}

func memoryLeft() (available, total int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			total = kb << 10
		case "MemAvailable:":
			available = kb << 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("/proc/meminfo does not say how much memory there is")
	}
	return available, total, nil
}

func diskLeft(dir string) (free, total int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize, nil
}
