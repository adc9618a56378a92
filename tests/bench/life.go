package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
)

// manyRuns is how many runs live at once where the growth of a start and of the daemon is measured.
const manyRuns = 40

// stubbornAgent is one that ignores TERM.
const stubbornAgent = "stubborn"

// measureLife times the end of runs, and finds out what forty of them at once cost.
func measureLife(ctx context.Context, b *bench) error {
	if err := b.stopDaemon(); err != nil { // a fresh one: its memory is measured
		return err
	}
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	folder := filepath.Join(d.catalog.Config, "harness")
	text := fmt.Sprintf("name = %q\ncommand = [\"/bin/sh\", \"-c\", \"trap '' TERM HUP INT; while :; do sleep 1; done\"]\nmcpTransports = [\"stdio\"]\n", stubbornAgent)
	agent := fmt.Sprintf("harness = %q\nbindings = {}\n", stubbornAgent)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, stubbornAgent+".toml"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(d.catalog.AgentsDir(), stubbornAgent+".toml"), []byte(agent), 0o600)); err != nil {
		return err
	}
	if err := b.measureStops(ctx, d); err != nil {
		return err
	}
	return b.measureMany(ctx, d)
}

// measureStops times `handler kill`, from its start to its end, when nothing of the run is left.
func (b *bench) measureStops(ctx context.Context, d *daemon) error {
	for _, c := range []struct {
		agent, what string
		target      float64
		times       int
	}{
		{plainAgent, "`handler kill` of an agent that obeys TERM, to its end, median", 500, b.times(20, 4)},
		{stubbornAgent, "`handler kill` of one that ignores TERM (2 s of grace), median", 2500, b.times(6, 2)},
	} {
		var took []float64
		for range c.times {
			stream, err := d.api.Start(ctx, types.RunRequest{Agent: c.agent, Cwd: d.scope})
			if err != nil {
				return err
			}
			kill := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "kill", stream.RunID)
			kill.Env, kill.Dir = d.env, "/"
			began := time.Now()
			out, err := kill.CombinedOutput()
			took = append(took, milliseconds(time.Since(began)))
			stream.Close()
			if err != nil {
				return fmt.Errorf("handler kill: %w: %s", err, strings.TrimSpace(string(out)))
			}
		}
		b.report.add(row{Group: "life", What: c.what, Figure: median(took), Unit: "ms", Target: atMost(c.target),
			Numbers: []number{{"fastest", quantile(took, 0), "ms"}, {"slowest", quantile(took, 1), "ms"}}})
	}
	return nil
}

// measureMany starts forty runs one after the other and leaves them at rest.
func (b *bench) measureMany(ctx context.Context, d *daemon) (err error) {
	var firsts, lasts, ratios, memories []float64
	for range b.times(3, 1) {
		var lives []*live
		end := func() (err error) {
			for _, l := range lives {
				err = errors.Join(err, l.end(context.WithoutCancel(ctx), d))
			}
			return err
		}
		for range manyRuns {
			l, err := d.run(ctx, plainAgent)
			if err != nil {
				return errors.Join(err, end())
			}
			lives = append(lives, l)
			if err := l.session(d.scope); err != nil {
				return errors.Join(err, end())
			}
		}
		first, last := milliseconds(lives[0].took), milliseconds(lives[manyRuns-1].took)
		firsts, lasts, ratios = append(firsts, first), append(lasts, last), append(ratios, last/first)
		if err := rest(ctx, settleTime); err != nil {
			return errors.Join(err, end())
		}
		c, err := d.census(ctx)
		if err = errors.Join(err, end()); err != nil {
			return err
		}
		memories = append(memories, float64(c.daemon.private)/1e6)
	}
	b.report.add(row{Group: "life", What: fmt.Sprintf("start of run %d while the others live, against the first", manyRuns), Figure: median(ratios), Unit: "×",
		Target: atMost(2), Numbers: []number{{"first", median(firsts), "ms"}, {"last", median(lasts), "ms"}}})
	b.report.add(row{Group: "life", What: fmt.Sprintf("daemon with %d runs at rest, its own memory", manyRuns), Figure: median(memories), Unit: "MB", Target: atMost(150)})
	return nil
}
