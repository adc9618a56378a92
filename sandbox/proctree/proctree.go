// Package proctree reads the host's process table from /proc and signals processes without ever hitting another
// one that took over a number. The fake driver and the guest outside a PID namespace end their processes with it.
package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Proc is one process at the moment of the scan.
type Proc struct {
	PID    int
	Parent int
	State  byte   // such as 'R', 'S'; 'Z' and 'X' are dead
	Start  uint64 // clock ticks after boot; with PID it names one process for good
	Ticks  uint64 // user and system time, in clock ticks (100 a second)
	Pages  int64  // resident pages
}

// Dead says whether the process has ended and only waits to be reaped.
func (p Proc) Dead() bool { return p.State == 'Z' || p.State == 'X' }

// Scan returns all processes that /proc shows.
func Scan() ([]Proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	procs := make([]Proc, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil { // else it has ended since
			procs = append(procs, p)
		}
	}
	return procs, nil
}

// Read returns one process.
func Read(pid int) (Proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Proc{}, err
	}
	// The name, in parentheses, may hold anything; the fields after its last parenthesis are plain (proc(5)).
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 22 || len(f[0]) != 1 {
		return Proc{}, fmt.Errorf("process %d: unreadable stat", pid)
	}
	num := func(field int) uint64 { // numbered as in proc(5)
		n, _ := strconv.ParseUint(string(f[field-3]), 10, 64)
		return n
	}
	return Proc{PID: pid, State: f[0][0], Parent: int(num(4)), Ticks: num(14) + num(15), Start: num(22), Pages: int64(num(24))}, nil
}

// Below returns those of procs that descend from root, without root itself.
func Below(procs []Proc, root int) []Proc {
	children := make(map[int][]Proc)
	for _, p := range procs {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Proc
	for next := []int{root}; len(next) > 0; next = next[1:] {
		found = append(found, children[next[0]]...)
		for _, p := range children[next[0]] {
			next = append(next, p.PID)
		}
		delete(children, next[0]) // a table read in motion may hold a loop
	}
	return found
}

// Signal sends sig to exactly p; one that has ended since is no error.
func Signal(p Proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if now, err := Read(p.PID); err != nil || now.Start != p.Start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}
