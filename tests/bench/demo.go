package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"
)

// measureDemo times `make demo` on a machine that is set up: everything that a person waits for, the screenshot
// included. The first one is not counted.
func measureDemo(ctx context.Context, b *bench) error {
	if err := b.stopDaemon(); err != nil { // the demo starts its own, and ends it
		return err
	}
	var took []float64
	for i := range 1 + b.times(3, 1) {
		cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "demo")
		var said bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = b.root, &said, &said
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("make demo: %w\n%s", err, said.Bytes())
		}
		if i > 0 {
			took = append(took, time.Since(began).Seconds())
		}
	}
	b.report.add(row{
		Group: "demo", What: "`make demo` again, screenshot included, median", Figure: median(took), Unit: "s", Target: atMost(20),
		Numbers: []number{{"slowest", quantile(took, 1), "s"}},
	})
	return nil
}
