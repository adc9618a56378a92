package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/doctor"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/settings"
)

func newDoctor(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check everything Handler needs, with the command that mends it", Args: usageArgs(cobra.NoArgs),
		Long: `Checks every prerequisite and names what is unusual about this machine and what Handler does about it.
Exit code 1 when there is a problem; remarks are no problems.`,
		Example: "  handler doctor\n  handler doctor --json | jq '.[] | select(.level != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := append(u.doctor(cmd.Context()), u.checkFiles()...)
			if err := u.result(findings, func(w io.Writer) error { return doctor.Render(w, findings, u.color(u.out)) }); err != nil {
				return err
			}
			if problems, _ := doctor.Count(findings); problems > 0 {
				return errReported{1}
			}
			return nil
		},
	}
}

// doctor asks the daemon, which knows the engine and the images; where there can be none, it looks by itself at what
// may keep the daemon from starting.
func (u *ui) doctor(ctx context.Context) []types.Finding {
	c, _, err := u.connect(ctx)
	if err == nil {
		var findings []types.Finding
		if findings, err = c.Doctor(ctx); err == nil {
			return findings
		}
	}
	s := doctor.System(u.getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin")
	s.User.Name, s.RuntimeDir = u.getenv("USER"), u.getenv("XDG_RUNTIME_DIR")
	home := u.getenv("HOME")
	s.StateDir, s.DataDir = filepath.Join(home, ".local/state/handler"), filepath.Join(home, ".local/share/handler")
	findings := doctor.Checks(ctx, s)
	f := fault.Of(err)
	mend := []string{}
	if f.Hint != "" && f.Hint != "handler doctor" { // which is what this is
		mend = strings.Split(f.Hint, "\n")
	}
	return append(findings, types.Finding{ID: "daemon", Level: doctor.Problem, Title: "handlerd cannot be reached", Detail: f.Text, Remedy: mend})
}

// checkFiles looks at the files that the person writes: handler.toml, which a daemon that lives has read long ago, and
// those of the agents.
func (u *ui) checkFiles() []types.Finding {
	d, err := u.dirs()
	if err != nil {
		return nil // what keeps the daemon from starting, too
	}
	var found []types.Finding
	bad := func(id, title, file string, err error) {
		found = append(found, types.Finding{ID: id, Level: doctor.Problem, Title: title, Detail: err.Error(), Remedy: []string{"edit " + file}})
	}
	if _, err := settings.Load(d.Settings()); err != nil {
		bad("settings", "Handler's settings cannot be used", d.Settings(), err)
	}
	dir := catalog.Catalog{Config: d.Config}.AgentsDir()
	saved, err := agents.List(dir)
	if err != nil {
		bad("agents", "the saved agents cannot be listed", dir, err)
	}
	for _, a := range saved {
		if a.Err != nil {
			bad("agents", "agent "+a.Name+" cannot be used", filepath.Join(dir, a.Name+".toml"), a.Err)
		}
	}
	return found
}
