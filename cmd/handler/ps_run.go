package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// oneRun gives the run whose id begins with prefix.
func oneRun(runs []types.Run, prefix string) (types.Run, error) {
	var found []types.Run
	for _, r := range runs {
		if r.ID == prefix {
			return r, nil
		}
		if prefix != "" && strings.HasPrefix(r.ID, prefix) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return types.Run{}, fault.New(fault.NotFound, "see: handler ps", "there is no run %q", prefix)
	case 1:
		return found[0], nil
	}
	return types.Run{}, fault.New(fault.Usage, "type more of it; see: handler ps", "%q is the beginning of several runs' ids", prefix)
}

// psRun shows one run: its line, and where its bytes went.
func psRun(w io.Writer, r types.Run) error {
	if err := psTable(w, []types.Run{r}); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := table(w, limitRows(r)); err != nil {
		return err
	}
	if len(r.Parts) > 0 {
		fmt.Fprintln(w)
		if err := table(w, partRows(r.Parts)); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if r.Failed > 0 {
		fmt.Fprintf(w, "%d connections were allowed and came to nothing: handler logs %s\n\n", r.Failed, r.ID)
	}
	rows := [][]string{{"FROM", "HOST", "CONNECTIONS", "OUT", "IN"}}
	add := func(from string, hosts []types.HostTraffic) {
		for _, h := range hosts {
			rows = append(rows, []string{from, plain(h.Host), fmt.Sprint(h.Requests), bytesText(h.Sent), bytesText(h.Received)})
		}
	}
	add("agent", r.Traffic)
	for _, p := range r.Parts {
		add(partName(p), p.Traffic)
	}
	if len(rows) == 1 {
		_, err := fmt.Fprintln(w, "nothing went out")
		return err
	}
	return table(w, rows)
}

// partRows are a run's browsers and hosted servers, and who keeps their limits.
func partRows(parts []types.Part) [][]string {
	rows := [][]string{{"BESIDE IT", "SESSION", "MEMORY", "ALLOWED", "KEPT BY", "PROCESSES", "ALLOWED", "KEPT BY"}}
	for _, p := range parts {
		session := plain(p.Session)
		if session == "" {
			session = "–"
		}
		rows = append(rows, []string{partName(p), session, amount(p.MemoryBytes, p.MemoryLimit), amount(p.MemoryLimit.Value, p.MemoryLimit), p.MemoryLimit.By,
			fmt.Sprint(p.Processes), fmt.Sprint(p.ProcLimit.Value), p.ProcLimit.By})
	}
	return rows
}
