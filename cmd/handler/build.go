package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// build asks the daemon for an image and shows how it goes: a bar a step on a terminal, plain lines elsewhere, one
// JSON line an event with --json.
func (u *ui) build(ctx context.Context, req types.BuildRequest) error {
	c, _, err := u.connect(ctx)
	if err != nil {
		return err
	}
	show := u.progress()
	err = c.Build(ctx, req, show.event)
	show.end(err)
	return err
}

// A progress shows the events of a build.
type progress interface {
	event(types.Progress)
	end(error)
}

func (u *ui) progress() progress {
	switch {
	case u.json:
		return jsonProgress{u.out}
	case terminal(u.errout) && width(u.errout) > 0: // bars need a width, which some terminals have not
		return &barProgress{u: u, bars: mpb.New(mpb.WithOutput(u.errout), mpb.WithWidth(24))}
	default:
		return &lineProgress{u: u}
	}
}

type jsonProgress struct{ w io.Writer }

func (p jsonProgress) event(e types.Progress) { _ = writeJSONLine(p.w, e) }
func (p jsonProgress) end(error)              {}

// lineProgress writes a line when a step begins and one when it ends, and a sign of life in between.
type lineProgress struct {
	u     *ui
	step  string
	since time.Time
	spoke time.Time
}

// lifeSign is how long a step may go on without a word.
const lifeSign = 30 * time.Second

func (p *lineProgress) event(e types.Progress) {
	now := time.Now()
	switch {
	case e.Done != "":
		fmt.Fprintln(p.u.out, e.Done)
	case e.Step != "" && e.Took == 0:
		p.step, p.since, p.spoke = e.Step, now, now
		p.u.say("%s …", plain(e.Step))
	case e.Took != 0:
		p.u.say("%s: done in %s", plain(p.step), seconds(time.Duration(e.Took)*time.Millisecond))
	case now.Sub(p.spoke) > lifeSign:
		p.spoke = now
		p.u.say("%s: %s so far  %s", plain(p.step), seconds(now.Sub(p.since)), cut(plain(e.Line), 80))
	}
}

func (p *lineProgress) end(error) {}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// barProgress draws one line a step: its name, a bar where the size is known, the time, the last line of output.
type barProgress struct {
	u    *ui
	bars *mpb.Progress
	bar  *mpb.Bar
	line string
	done string
}

func (p *barProgress) event(e types.Progress) {
	switch {
	case e.Done != "":
		p.done = e.Done
	case e.Step != "" && e.Took == 0:
		p.finish()
		p.line = ""
		name := plain(e.Step)
		p.bar = p.bars.New(0, mpb.BarStyle(),
			mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR), decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.line })))
	case e.Took != 0:
		p.finish()
	case p.bar != nil:
		if e.Total > 0 {
			p.bar.SetTotal(e.Total, false)
			p.bar.SetCurrent(e.Bytes)
		}
		if e.Line != "" {
			p.line = cut(plain(e.Line), 60)
		} else if e.Bytes > 0 {
			p.line = bytesText(e.Bytes)
		}
	}
}

func (p *barProgress) finish() {
	if p.bar != nil {
		p.line = ""
		p.bar.SetTotal(-1, true)
		p.bar = nil
	}
}

func (p *barProgress) end(err error) {
	if err != nil && p.bar != nil {
		p.bar.Abort(false)
	} else {
		p.finish()
	}
	p.bars.Wait()
	if p.done != "" {
		fmt.Fprintln(p.u.out, p.done)
	}
}

func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// images lists what is built of one kind.
func (u *ui) images(ctx context.Context, kind string) error {
	c, _, err := u.connect(ctx)
	if err != nil {
		return err
	}
	all, err := c.Images(ctx)
	if err != nil {
		return err
	}
	list := []types.Image{}
	for _, i := range all {
		if i.Kind == kind {
			list = append(list, i)
		}
	}
	return u.result(list, func(w io.Writer) error {
		rows := [][]string{{"NAME", "STATE", "SIZE", "BUILT", ""}}
		for _, i := range list {
			size, built, note := "–", "–", i.Reason
			if i.State != "missing" {
				size, built = bytesText(i.Bytes), ago(i.Created)
			}
			if i.Remedy != "" {
				note = i.Remedy
			}
			rows = append(rows, []string{i.Name, i.State, size, built, note})
		}
		return table(w, rows)
	})
}

// buildFlags are those of every build command.
func buildFlags(cmd *cobra.Command, req *types.BuildRequest) {
	f := cmd.Flags()
	f.BoolVar(&req.NoCache, "no-cache", false, "build every step anew")
	f.BoolVar(&req.IfStale, "if-stale", false, "do nothing where it is built and fresh")
	f.StringSliceVar(&req.CACerts, "ca-cert", nil, "PEM file of a further certificate authority to trust while building (repeatable)")
	f.StringVar(&req.NPMRegistry, "npm-registry", "", "npm registry to install from")
}

func newToolbox(u *ui) *cobra.Command {
	named := func(args []string) string {
		if len(args) == 0 {
			return "default"
		}
		return args[0]
	}
	var req types.BuildRequest
	build := &cobra.Command{
		Use: "build [NAME]", Short: "Build the default toolbox, or a named one on top of it", Args: usageArgs(cobra.MaximumNArgs(1)),
		Long: `Builds the base image of the sandboxes: Debian trixie with Chromium, fonts, Node, Python, git and the usual tools.
The base comes from mmdebstrap and a Debian mirror, or from a registry image (--base registry).`,
		Example: `  handler toolbox build
  handler toolbox build rust --packages cargo,rustc
  handler toolbox build shop --file ~/src/shop/Containerfile`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Kind, req.Name = types.KindToolbox, named(args)
			if req.Name == "default" && (len(req.Packages) > 0 || req.Containerfile != "") {
				return fault.New(fault.Usage, "give it a name: handler toolbox build NAME --packages …",
					"--packages and --file make a toolbox of their own, on top of the default one")
			}
			var err error
			if req.Containerfile, err = absolute(req.Containerfile); err != nil {
				return err
			}
			return u.build(cmd.Context(), req)
		},
	}
	buildFlags(build, &req)
	build.Flags().StringSliceVar(&req.Packages, "packages", nil, "further Debian packages, comma separated")
	build.Flags().StringVar(&req.Containerfile, "file", "", "a Containerfile whose steps come on top (FROM is given)")
	build.Flags().StringVar(&req.Mirror, "mirror", "", "Debian mirror (default: the one of this machine)")
	build.Flags().StringVar(&req.Base, "base", "", "auto, mmdebstrap or registry")
	list := &cobra.Command{
		Use: "list", Short: "List the toolboxes", Args: usageArgs(cobra.NoArgs), Example: "  handler toolbox list",
		RunE: func(cmd *cobra.Command, _ []string) error { return u.images(cmd.Context(), types.KindToolbox) },
	}
	status := &cobra.Command{
		Use: "status [NAME]", Short: "Say whether a toolbox is built and fresh; exit code 1 if not", Args: usageArgs(cobra.MaximumNArgs(1)),
		Example: "  handler toolbox status\n  handler toolbox status rust --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.imageStatus(cmd.Context(), types.KindToolbox, named(args))
		},
	}
	check := &cobra.Command{
		Use: "check [NAME]", Short: "Run every addon's check in a toolbox", Args: usageArgs(cobra.MaximumNArgs(1)),
		Example: "  handler toolbox check",
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.build(cmd.Context(), types.BuildRequest{Kind: types.KindToolbox, Name: named(args), CheckOnly: true})
		},
	}
	rm := &cobra.Command{
		Use: "rm NAME", Short: "Remove a toolbox", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler toolbox rm rust",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.Remove(cmd.Context(), types.BuildRequest{Kind: types.KindToolbox, Name: args[0]}); err != nil {
				return err
			}
			return u.result(map[string]string{"removed": args[0]}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "removed toolbox %s; to have it again: handler toolbox build %s\n", args[0], args[0])
				return err
			})
		},
	}
	return group("toolbox", "Build and look at the base images of the sandboxes", build, list, status, check, rm)
}

func (u *ui) imageStatus(ctx context.Context, kind, name string) error {
	c, _, err := u.connect(ctx)
	if err != nil {
		return err
	}
	all, err := c.Images(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Kind != kind || i.Name != name {
			continue
		}
		if err := u.result(i, func(w io.Writer) error {
			text := fmt.Sprintf("%s %s: %s", i.Kind, i.Name, i.State)
			if i.Reason != "" {
				text += " (" + i.Reason + ")"
			}
			if i.Remedy != "" {
				text += "\n  " + i.Remedy
			}
			_, err := fmt.Fprintln(w, text)
			return err
		}); err != nil {
			return err
		}
		if i.State != "fresh" {
			return errReported{1}
		}
		return nil
	}
	return fault.New(fault.NotFound, "see: handler "+kind+" list", "there is no %s %q", kind, name)
}
