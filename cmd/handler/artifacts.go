package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func newArtifacts(u *ui) *cobra.Command {
	cmd := group("artifacts", "Look at, fetch, save and remove the files that agents made for you",
		newArtifactsList(u), newArtifactsShow(u), newArtifactsGet(u), newArtifactsSave(u), newArtifactsRm(u), newArtifactsUsage(u))
	cmd.Long = `Pictures that agents' tools made, and what the guarded browser downloaded or printed, are kept as artifacts: outside
every sandbox, until you remove them or delete the agent's session they belong to.

An id is accepted by its beginning, of at least four characters.`
	cmd.Example = "  handler artifacts\n  handler artifacts get xnsqjsjn\n  handler artifacts save xnsqjsjn --agent web --folder docs/img"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return u.listArtifacts(cmd, client.ArtifactFilter{}) }
	return cmd
}

func newArtifactsList(u *ui) *cobra.Command {
	var f client.ArtifactFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List artifacts, oldest first", Args: usageArgs(cobra.NoArgs),
		Example: "  handler artifacts list\n  handler artifacts list --run k3f9\n  handler artifacts list --agent web --json | jq -r '.[].path'",
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.listArtifacts(cmd, f) },
	}
	cmd.Flags().StringVar(&f.Run, "run", "", "only those of this run")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only those of this agent")
	u.completeRuns(cmd)
	cmd.Flags().StringVar(&f.Session, "session", "", "only those of this ACP session")
	return cmd
}

func (u *ui) listArtifacts(cmd *cobra.Command, f client.ArtifactFilter) error {
	c, _, err := u.connect(cmd.Context())
	if err != nil {
		return err
	}
	list, err := c.Artifacts(cmd.Context(), f)
	if err != nil {
		return err
	}
	return u.result(list.Artifacts, func(w io.Writer) error {
		if len(list.Artifacts) == 0 {
			_, err := fmt.Fprintln(w, "no artifacts")
			return err
		}
		rows := [][]string{{"ID", "RUN", "AGENT", "NAME", "TYPE", "SIZE", "MADE BY", "KEPT"}}
		for _, a := range list.Artifacts {
			kind, _, _ := strings.Cut(a.Type, ";")
			rows = append(rows, []string{shortArtifact(a.ID), a.Run, a.Agent, a.Name, kind, bytesText(a.Bytes), a.Source, ago(a.Created)})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\n%s in all\n", fullness(list.Usage))
		return err
	})
}

// shortArtifact is what of an artifact's id is shown, and enough to type.
func shortArtifact(id string) string { return id[:min(8, len(id))] }

// fullness says how much of the store is used.
func fullness(u types.ArtifactUsage) string {
	return fmt.Sprintf("%d of %d artifacts, %s of %s", u.Count, u.MaxCount, bytesText(u.Bytes), bytesText(u.MaxBytes))
}

func newArtifactsUsage(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "usage", Short: "Say how full the store is, and which runs fill it", Args: usageArgs(cobra.NoArgs),
		Example: "  handler artifacts usage\n  handler artifacts usage --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.Artifacts(cmd.Context(), client.ArtifactFilter{})
			if err != nil {
				return err
			}
			return u.result(list.Usage, func(w io.Writer) error { return printUsage(w, list.Usage) })
		},
	}
}

func printUsage(w io.Writer, usage types.ArtifactUsage) error {
	fmt.Fprintf(w, "%s; at most %d a run\n", fullness(usage), usage.PerRun)
	if len(usage.Largest) == 0 {
		return nil
	}
	rows := [][]string{{"RUN", "AGENT", "ARTIFACTS", "SIZE"}}
	for _, s := range usage.Largest {
		rows = append(rows, []string{s.Run, s.Agent, fmt.Sprint(s.Count), bytesText(s.Bytes)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "to make room: handler artifacts rm --run %s\n", plain(usage.Largest[0].Run))
	return err
}

func newArtifactsShow(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Say everything of an artifact, and which file to open", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler artifacts show xnsqjsjn\n  xdg-open \"$(handler artifacts show xnsqjsjn --json | jq -r .path)\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, a, err := u.artifact(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return u.result(a, func(w io.Writer) error {
				rows := [][]string{{"id", a.ID}, {"name", a.Name}, {"type", a.Type}, {"size", fmt.Sprintf("%s (%d bytes)", bytesText(a.Bytes), a.Bytes)},
					{"run", a.Run}, {"agent", a.Agent}}
				for _, r := range [][]string{{"session", a.Session}, {"made by", a.Source}} {
					if r[1] != "" {
						rows = append(rows, r)
					}
				}
				return table(w, append(rows, []string{"kept", a.Created.Local().Format("2006-01-02 15:04:05")}, []string{"sha256", a.SHA256}, []string{"file", a.Path}))
			})
		},
	}
}

// artifact gives the artifact whose id begins with id, typed as it may be.
func (u *ui) artifact(ctx context.Context, id string) (*client.Client, types.Artifact, error) {
	c, _, err := u.connect(ctx)
	if err != nil {
		return nil, types.Artifact{}, err
	}
	a, err := c.Artifact(ctx, strings.ToLower(id))
	return c, a, err
}

func newArtifactsSave(u *ui) *cobra.Command {
	var save types.ArtifactSave
	cmd := &cobra.Command{
		Use: "save ID", Short: "Copy an artifact into a folder that an agent may write to", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Copies an artifact into a scope of an agent, or of a live run, that is rw. The file is there whole or not at all; no
symlink is followed, since an agent may be at work there; what your own tools would run is not written (A.9).`,
		Example: "  handler artifacts save xnsqjsjn --agent web\n  handler artifacts save xnsqjsjn --run k3f9 --folder docs/img --name cart.png --conflict replace",
		RunE: func(cmd *cobra.Command, args []string) error {
			if save.Destination.Agent != "" {
				cwd, err := filepath.Abs(".")
				if err != nil {
					return fault.Wrap(fault.Failed, err, "cd to a folder that exists", "the current folder")
				}
				save.Destination.Cwd = cwd
			}
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			path, err := c.SaveArtifact(cmd.Context(), strings.ToLower(args[0]), save)
			if err != nil {
				return err
			}
			return u.result(types.ArtifactSaved{Path: path}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, plain(path))
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&save.Destination.Agent, "agent", "", "into a scope of this agent (of one that names none: the folder you are in)")
	fl.StringVar(&save.Destination.Run, "run", "", "into a scope of this live run")
	fl.StringVar(&save.Destination.Folder, "folder", "", "folder in the scope, below it or absolute (default: the scope itself)")
	fl.StringVar(&save.Name, "name", "", "file name (default: the artifact's own)")
	fl.StringVar(&save.Conflict, "conflict", types.ConflictError, "where the name is taken: error, rename or replace")
	_ = cmd.RegisterFlagCompletionFunc("conflict", cobra.FixedCompletions([]string{types.ConflictError, types.ConflictRename, types.ConflictReplace}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newArtifactsRm(u *ui) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use: "rm ID… | rm --run RUN", Short: "Remove artifacts for good", Args: usageArgs(cobra.ArbitraryArgs),
		Example: "  handler artifacts rm xnsqjsjn\n  handler artifacts rm --run k3f9",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (run == "") == (len(args) == 0) {
				return fault.New(fault.Usage, "name what is to go: handler artifacts rm ID…, or handler artifacts rm --run RUN", "ids or --run, one of them")
			}
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			removed := 0
			if run != "" {
				if removed, err = c.RemoveArtifacts(cmd.Context(), client.ArtifactFilter{Run: run}); err != nil {
					return err
				}
			}
			for _, id := range args {
				if err := c.RemoveArtifact(cmd.Context(), strings.ToLower(id)); err != nil {
					return err
				}
				removed++
			}
			return u.result(types.ArtifactsRemoved{Removed: removed}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "removed %s\n", plural(removed, "artifact"))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "all of this run")
	u.completeRuns(cmd)
	return cmd
}

// completeRuns completes --run by the runs that have artifacts.
func (u *ui) completeRuns(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("run", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return matching(cmd, u.artifactRuns, typed, nil), cobra.ShellCompDirectiveNoFileComp
	})
}

// artifactIDs are the newest artifacts.
func (u *ui) artifactIDs(ctx context.Context) []string {
	const most = 50
	var ids []string
	for _, a := range slices.Backward(u.knownArtifacts(ctx)) {
		if ids = append(ids, shortArtifact(a.ID)+"\t"+a.Name+" of run "+a.Run); len(ids) == most {
			break
		}
	}
	return ids
}

func (u *ui) artifactRuns(ctx context.Context) []string {
	var runs []string
	for _, a := range slices.Backward(u.knownArtifacts(ctx)) {
		if run := a.Run + "\t" + a.Agent; a.Run != "" && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	return runs
}

// knownArtifacts are those of a daemon that runs, oldest first.
func (u *ui) knownArtifacts(ctx context.Context) []types.Artifact {
	c, _, ok := u.daemon()
	if !ok {
		return nil
	}
	list, err := c.Artifacts(ctx, client.ArtifactFilter{})
	if err != nil {
		return nil
	}
	return list.Artifacts
}
