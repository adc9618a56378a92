package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// measureStart holds the start of the demo agent's sandbox through handlerd against podman's bare API, both from the
// first request to the first byte of the agent, and times `handler acp demo` as an editor sees it.
func measureStart(ctx context.Context, b *bench) (err error) {
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	l, err := d.run(ctx, "demo") // podman's service comes up, and the images are warm after it
	if err != nil {
		return err
	}
	if err := l.end(ctx, d); err != nil {
		return err
	}
	raw, err := newRaw(ctx, b, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.close()) }()
	values, err := turns(ctx, b.times(25, 5),
		contender{func(ctx context.Context) (float64, error) {
			l, err := d.run(ctx, "demo")
			if err != nil {
				return 0, err
			}
			return milliseconds(l.took), l.end(ctx, d)
		}},
		contender{func(ctx context.Context) (float64, error) {
			took, err := raw.start(ctx)
			return milliseconds(took), err
		}},
		contender{func(ctx context.Context) (float64, error) {
			took, err := d.editor(ctx, b)
			return milliseconds(took), err
		}},
	)
	if err != nil {
		return err
	}
	b.report.add(row{
		Group: "start", What: "sandbox start, to the first byte of the agent, against podman's bare API", Figure: ratio(values[0], values[1]), Unit: "×",
		Target: atMost(1.3), Numbers: []number{{"handlerd", median(values[0]), "ms"}, {"podman", median(values[1]), "ms"}},
	})
	b.report.add(row{
		Group: "start", What: "`handler acp demo` to the answer to initialize, median", Figure: median(values[2]), Unit: "ms", Target: atMost(300),
		Numbers: []number{{"fastest", quantile(values[2], 0), "ms"}, {"90th percentile", quantile(values[2], 0.9), "ms"}},
	})
	return measureChain(ctx, b, d)
}

// measureChain times a small request through everything that a real one passes: handlerd, the sandbox, its guest, the
// demo agent, and back.
func measureChain(ctx context.Context, b *bench, d *daemon) (err error) {
	l, err := d.run(ctx, "demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.end(context.WithoutCancel(ctx), d)) }()
	defer until(ctx, func() { l.stream.Close() })()
	var took []float64
	for range b.times(2000, 300) {
		t, err := l.ask()
		if err != nil {
			return err
		}
		took = append(took, microseconds(t))
	}
	b.report.add(row{
		Group: "start", What: "a small request to the demo agent in its sandbox and its answer, median", Figure: median(took), Unit: "µs",
		Numbers: []number{{"99th percentile", quantile(took, 0.99), "µs"}},
	})
	return nil
}

// editor starts `handler acp demo` as an editor does, and gives the time to the answer to initialize.
func (d *daemon) editor(ctx context.Context, b *bench) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "acp", "demo")
	cmd.Dir, cmd.Env = d.scope, d.env
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = in.Close() // the end of input ends the run
		_, _ = io.Copy(io.Discard, out)
		err = errors.Join(err, cmd.Wait(), d.allGone(ctx))
	}()
	if _, err := io.WriteString(in, initialize); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, `"protocolVersion":1`) {
		return 0, fmt.Errorf("handler acp demo answered %.200q: %w: %s", line, err, said.String())
	}
	return time.Since(began), nil
}

// allGone waits until no run is left: a run's end goes on when its client is gone.
func (d *daemon) allGone(ctx context.Context) error {
	for {
		runs, err := d.api.Runs(ctx)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return nil
		}
		if err := d.api.Kill(ctx, runs[0].ID); err != nil && ctx.Err() != nil {
			return err // of a run that has just ended it is no error
		}
	}
}
