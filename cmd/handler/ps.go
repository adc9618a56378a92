package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// running gives a client of the daemon without starting one; nil where none runs.
func (u *ui) running(cmd *cobra.Command) (*client.Client, error) {
	d, err := u.dirs()
	if err != nil {
		return nil, err
	}
	c := client.New(d.Socket())
	if _, err := c.Version(cmd.Context()); client.NotRunning(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return c, nil
}

func newPS(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "ps [RUN]", Short: "List the runs, or show one, what it has used of its limits and where its bytes went", Args: usageArgs(cobra.MaximumNArgs(1)),
		Example: "  handler ps\n  handler ps k3f9\n  handler ps --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := u.running(cmd)
			if err != nil {
				return err
			}
			runs := []types.Run{}
			if c != nil {
				if runs, err = c.Runs(cmd.Context()); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				run, err := oneRun(runs, args[0])
				if err != nil {
					return u.orEnded(err, args[0])
				}
				return u.result(run, func(w io.Writer) error { return psRun(w, run) })
			}
			return u.result(runs, func(w io.Writer) error { return psTable(w, runs) })
		},
	}
}

// turnOf says what a run does.
func turnOf(r types.Run) string {
	if r.State != types.StateRunning {
		return r.State
	}
	return r.Turn
}

func psTable(w io.Writer, runs []types.Run) error {
	if len(runs) == 0 {
		_, err := fmt.Fprintln(w, "no runs; start one: handler run AGENT \"…\"")
		return err
	}
	rows := [][]string{{"RUN", "AGENT", "SINCE", "TURN", "MEMORY", "CPU", "PROCS", "STATE", "LEFT", "BROWSER", "NETWORK"}}
	for _, r := range runs {
		browser := r.Browser
		if browser == "" {
			browser = "–"
		}
		left := "–"
		if r.LifetimeLeft != nil {
			left = span(max(0, *r.LifetimeLeft))
		}
		rows = append(rows, []string{
			r.ID, r.Agent, ago(r.Since), turnOf(r), amount(r.MemoryBytes, r.MemoryLimit) + ofLimit(r.MemoryLimit, func(n int64) string { return amount(n, r.MemoryLimit) }),
			seconds(time.Duration(r.CPUMillis) * time.Millisecond), fmt.Sprint(r.Processes) + ofLimit(r.ProcLimit, func(n int64) string { return fmt.Sprint(n) }),
			amount(r.StateBytes, r.StateLimit), left, browser, fmt.Sprintf("%d allowed, %d refused", r.Allowed, r.Refused),
		})
		for _, p := range r.Parts {
			rows = append(rows, []string{
				"└", partName(p), ago(p.Since), "–", amount(p.MemoryBytes, p.MemoryLimit) + ofLimit(p.MemoryLimit, func(n int64) string { return amount(n, p.MemoryLimit) }),
				seconds(time.Duration(p.CPUMillis) * time.Millisecond), fmt.Sprint(p.Processes) + ofLimit(p.ProcLimit, func(n int64) string { return fmt.Sprint(n) }),
				"–", "–", "–", fmt.Sprintf("%d allowed, %d refused", p.Allowed, p.Refused),
			})
		}
	}
	return table(w, rows)
}

// partName is what a sandbox of a run besides the agent's is called: "browser", "server notes".
func partName(p types.Part) string {
	if p.Kind == types.PartBrowser {
		return "browser"
	}
	return plain(p.Kind + " " + p.Name)
}

// ofLimit says a bound; who keeps it is in handler ps RUN.
func ofLimit(l types.Limit, text func(int64) string) string {
	if l.Value == 0 {
		return ""
	}
	return " of " + text(l.Value)
}

func newKill(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "kill RUN…", Short: "End runs, and wait until nothing of them is left", Args: usageArgs(cobra.MinimumNArgs(1)),
		Example: "  handler kill k3f9\n  handler kill $(handler ps --json | jq -r '.[].id')",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, id := range args {
				if id == "" {
					return errNoID()
				}
			}
			runs, err := c.Runs(cmd.Context())
			if err != nil {
				return err
			}
			var ended []string
			for _, id := range args {
				run, found := oneRun(runs, id)
				if err := c.Kill(cmd.Context(), id); err != nil {
					return u.orEnded(err, id)
				}
				if found == nil {
					ended = append(ended, endedText(run))
				}
			}
			return u.result(map[string]any{"killed": args}, func(w io.Writer) error {
				for _, text := range ended {
					if _, err := fmt.Fprintln(w, text); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// endedText says what ended with a run: "ended k3f9 of web, with its browser, server notes".
func endedText(r types.Run) string {
	text := "ended " + r.ID + " of " + plain(r.Agent)
	var parts []string
	for _, p := range r.Parts {
		parts = append(parts, partName(p))
	}
	if len(parts) > 0 {
		text += ", with its " + strings.Join(parts, ", ")
	}
	return text
}

// errNoID answers an empty id, as an empty variable of a script gives it: it is the beginning of every run's.
func errNoID() error { return fault.New(fault.Usage, "see: handler ps", "the run's id is empty") }

func newLogs(u *ui) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs [RUN]", Short: "Show what a run said on standard error, and what was refused", Args: usageArgs(cobra.MaximumNArgs(1)),
		Long: `Shows a run's log: what its agent said on standard error, what the rules refused, and what handlerd did. Logs outlive
their runs. Without RUN it is the run whose log was written to last.`,
		Example: "  handler logs\n  handler logs k3f9 --follow",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				id, err := u.latestRun()
				if err != nil {
					return err
				}
				args = []string{id}
			}
			if args[0] == "" {
				return errNoID()
			}
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			return c.Log(cmd.Context(), args[0], follow, func(l types.LogLine) error {
				if u.json {
					return writeJSONLine(u.out, l)
				}
				_, err := fmt.Fprintf(u.out, "%s  %-8s  %s\n", l.Time.Format("15:04:05.000"), l.From, plain(l.Text))
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	return cmd
}

// latestRun is the run whose log was written to last; it is said which one that is.
func (u *ui) latestRun() (string, error) {
	d, err := u.dirs()
	if err != nil {
		return "", err
	}
	runs := endedRuns(d)
	if len(runs) == 0 {
		return "", fault.New(fault.NotFound, "start one: handler run AGENT \"…\"", "there was no run yet")
	}
	u.say("run %s, %s", runs[0].id, ago(runs[0].time))
	return runs[0].id, nil
}
