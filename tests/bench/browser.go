package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// browserAgent is the demo agent with the guarded browser.
const browserAgent = "bench-browser"

// measureBrowser times pages of the guarded browser as an agent has them: the first call of a run, which starts the browser
// in its sandbox, opens the page and reads it; and later ones. The page is a file of the agent's, so no network counts.
func measureBrowser(ctx context.Context, b *bench) error {
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	agent := "harness = \"demo\"\n[bindings.playwright]\nplacement = \"hosted\"\n"
	page := "<!doctype html><title>Page</title><h1>Hello</h1>" + strings.Repeat("<p>a line of text, <a href=x>a link</a></p>\n", 50)
	for name, text := range map[string]string{filepath.Join(d.catalog.AgentsDir(), browserAgent+".toml"): agent, filepath.Join(d.scope, "index.html"): page} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	var first, later, files []float64
	for i := range 1 + b.times(7, 2) {
		pages, err := d.browse(ctx, b)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // podman's service came up, and Chromium's files are in memory after it
		}
		first, later, files = append(first, pages[0]), append(later, pages[2:]...), append(files, pages[1])
	}
	b.report.add(row{
		Group: "browser", What: "guarded browser: first call of a run to its page, read, median", Figure: median(first), Unit: "s", Target: atMost(2.5),
		Numbers: []number{{"fastest", quantile(first, 0), "s"}, {"slowest", quantile(first, 1), "s"}},
	})
	b.report.add(row{
		Group: "browser", What: "guarded browser: a later page, read, median", Figure: median(later), Unit: "s", Target: atMost(0.3),
		Numbers: []number{{"90th percentile", quantile(later, 0.9), "s"}, {"the second", median(files), "s"}},
	})
	return nil
}

// browse has the demo agent open a page six times in one run, and gives the seconds of each.
func (d *daemon) browse(ctx context.Context, b *bench) ([]float64, error) {
	const times = 6
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	steps := strings.TrimSuffix(strings.Repeat("open http://files.workspace.invalid/index.html; ", times), "; ")
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "run", browserAgent, "--yes", "--json", steps)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.scope, d.env, &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("handler run %s: %w\n%s", browserAgent, err, said.Bytes())
	}
	var took []float64
	for line := range bytes.Lines(out.Bytes()) {
		var e struct {
			Event   string  `json:"event"`
			Status  any     `json:"status"` // a number in another event
			Seconds float64 `json:"seconds"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("handler run %s: %w: %.200s", browserAgent, err, line)
		}
		if e.Event == "tool_done" && e.Status == "completed" {
			took = append(took, e.Seconds)
		}
	}
	if len(took) != times {
		return nil, fmt.Errorf("%d of %d pages came: %.2000s", len(took), times, out.Bytes())
	}
	return took, nil
}
