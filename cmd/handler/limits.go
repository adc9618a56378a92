package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
)

// limitFlags are the limits that agent add and edit save, and that run and acp give one run.
type limitFlags struct {
	memory, tmp, home, shm, state, lifetime, idle string
	cpus                                          float64
	processes                                     int64
}

func (f *limitFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory limit, such as 2GB or 300M")
	fl.Float64Var(&f.cpus, "cpus", 0, "CPU limit in processors, such as 1.5 (whole ones where handler doctor says so)")
	fl.Int64Var(&f.processes, "processes", 0, "limit of processes and threads")
	fl.StringVar(&f.tmp, "tmp", "", "size of /tmp")
	fl.StringVar(&f.home, "home", "", "size of the home folder")
	fl.StringVar(&f.shm, "shm", "", "size of /dev/shm; browsers want 512MiB")
	fl.StringVar(&f.state, "state", "", "limit of what its login and transcripts may take on disk, or none")
	fl.StringVar(&f.lifetime, "lifetime", "", "time after which a run is ended, such as 2h, or none")
	fl.StringVar(&f.idle, "idle", "", "time without a message or a turn after which a run is ended, such as 30m, or none")
}

// save changes an agent as the flags say that were given.
func (f *limitFlags) save(cmd *cobra.Command, l *agents.Limits) {
	given := cmd.Flags().Changed
	for _, s := range []struct {
		name     string
		from, to *string
	}{
		{"memory", &f.memory, &l.Memory}, {"tmp", &f.tmp, &l.Tmp}, {"home", &f.home, &l.Home}, {"shm", &f.shm, &l.Shm},
		{"state", &f.state, &l.State}, {"lifetime", &f.lifetime, &l.Lifetime}, {"idle", &f.idle, &l.Idle},
	} {
		if given(s.name) {
			*s.to = *s.from
		}
	}
	if given("cpus") {
		l.CPUs = f.cpus
	}
	if given("processes") {
		l.Processes = f.processes
	}
}

// request is what a run is asked for with.
func (f *limitFlags) request() types.Limits {
	return types.Limits{Memory: f.memory, CPUs: f.cpus, Processes: f.processes, Tmp: f.tmp, Home: f.home, Shm: f.shm,
		State: f.state, Lifetime: f.lifetime, Idle: f.idle}
}

// limitRows are a run's limits for handler ps RUN: what, used, allowed, and who keeps it.
func limitRows(r types.Run) [][]string {
	allowed := func(l types.Limit, text string) string {
		if l.Value == 0 {
			return "no limit"
		}
		return text
	}
	by := func(l types.Limit) string {
		if l.Value == 0 {
			return "–"
		}
		return l.By
	}
	rows := [][]string{{"LIMIT", "USED", "ALLOWED", "KEPT BY"},
		{"memory", amount(r.MemoryBytes, r.MemoryLimit), allowed(r.MemoryLimit, amount(r.MemoryLimit.Value, r.MemoryLimit)), by(r.MemoryLimit)},
		{"CPU", seconds(time.Duration(r.CPUMillis)*time.Millisecond) + " of processor time",
			allowed(r.CPULimit, strconv.FormatFloat(float64(r.CPULimit.Value)/1000, 'f', -1, 64)+" processors"), by(r.CPULimit)},
		{"processes", fmt.Sprint(r.Processes), allowed(r.ProcLimit, fmt.Sprint(r.ProcLimit.Value)), by(r.ProcLimit)},
		{"state", amount(r.StateBytes, r.StateLimit), allowed(r.StateLimit, amount(r.StateLimit.Value, r.StateLimit)), by(r.StateLimit)},
	}
	for _, t := range []struct {
		name        string
		used, limit int64
	}{{"lifetime", time.Since(r.Since).Milliseconds(), r.Lifetime}, {"idle", r.Idle, r.IdleLimit}} {
		row := []string{t.name, span(t.used), "no limit", "–"}
		if t.limit > 0 {
			row[2], row[3] = span(t.limit), "handlerd"
		}
		rows = append(rows, row)
	}
	return rows
}

// amount writes bytes in the units of the limit that they are compared with.
func amount(n int64, limit types.Limit) string { return agents.Amount(n, limit.Value) }

// span writes milliseconds in the unit that people use of them.
func span(millis int64) string {
	switch d := time.Duration(millis) * time.Millisecond; {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d", int(d.Hours())/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
}
