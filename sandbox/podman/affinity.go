package podman

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// Where no cgroup bounds processor time, whole processors are given out: the sandbox's first process is bound to some
// of them before its command runs, everything that it starts inherits that, and the seccomp profile refuses
// sched_setaffinity inside.

// allowedCPUs lists the processors that this process may run on.
func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading which processors there are: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// wholeCPUs gives the number of processors that a sandbox is bound to for a CPU limit in thousandths, of there that are
// there; 0 for none, as when the limit is not less than the machine. A part of a processor cannot be given.
func wholeCPUs(limit sandbox.Limit, there int) (int, error) {
	if limit.Value == 0 || limit.Value >= int64(there)*1000 {
		return 0, nil
	}
	if limit.Value%1000 == 0 {
		return int(limit.Value / 1000), nil
	}
	if !limit.Asked {
		return 0, nil
	}
	remedy := fmt.Sprintf("cpus = %d", limit.Value/1000+1)
	if below := limit.Value / 1000; below > 0 {
		remedy = fmt.Sprintf("cpus = %d or %s", below, remedy)
	}
	return 0, &sandbox.UnenforcedError{Limit: "CPU", Remedy: remedy}
}

// chooseCPUs picks n of cpus: those that the fewest sandboxes are bound to, by chance among equals.
func chooseCPUs(n int, cpus []int, load map[int]int) []int {
	cpus = slices.Clone(cpus)
	rand.Shuffle(len(cpus), func(i, j int) { cpus[i], cpus[j] = cpus[j], cpus[i] })
	slices.SortStableFunc(cpus, func(a, b int) int { return load[a] - load[b] })
	chosen := cpus[:min(n, len(cpus))]
	slices.Sort(chosen)
	return chosen
}

// load counts the sandboxes that are bound to each processor.
func (s *views) load() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := map[int]int{}
	for _, v := range s.by {
		for _, cpu := range v.cpus {
			load[cpu]++
		}
	}
	return load
}

// bindCPUs binds every thread of the process pid to cpus, and makes sure that it is.
func bindCPUs(pid int, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	dir := fmt.Sprintf("/proc/%d/task", pid)
	// Until a look finds no thread that was not bound: one that was made meanwhile by one that was not is found next.
	for range 100 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		changed := false
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &now); err == nil && now == set {
				continue
			}
			changed = true
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !changed {
			return nil
		}
	}
	return errors.New("its threads do not stay as they were set")
}

// giveCPUs binds a sandbox that is set up, and does not run yet, to the processors that its CPU limit asks for.
func (d *Driver) giveCPUs(pid int, in input, v *view) error {
	if in.machine.enforced.CPU {
		return nil
	}
	there, err := allowedCPUs()
	if err != nil {
		return err
	}
	n, err := wholeCPUs(in.spec.Limits.CPU, len(there))
	if err != nil || n == 0 {
		return err
	}
	v.cpus = chooseCPUs(n, there, d.views.load())
	if err := bindCPUs(pid, v.cpus); err != nil {
		return fmt.Errorf("binding the sandbox to %d processors: %w", n, err)
	}
	return nil
}

// checkCPU refuses a CPU limit that was asked for and that cannot be kept.
func (m *machine) checkCPU(limit sandbox.Limit) error {
	if m.enforced.CPU || limit.Watched {
		return nil
	}
	there, err := allowedCPUs()
	if err != nil {
		return err
	}
	_, err = wholeCPUs(limit, len(there))
	var un *sandbox.UnenforcedError
	if errors.As(err, &un) {
		un.Reason = strings.TrimPrefix(m.reason+"; whole processors can be given", "; ")
	}
	return err
}
