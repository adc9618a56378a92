package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestClaude runs a real agent, Claude Code behind ACP, under a real client, with a scripted model outside.
func TestClaude(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end scripts need the real thing; run: make test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	client, err := installACPX(ctx, the.root)
	if err != nil {
		t.Fatal(err)
	}
	out, err := the.command(20*time.Minute, filepath.Join(the.bin, "handler"), "harness", "build", "claude-code", "--if-stale")
	if err != nil {
		t.Fatalf("handler harness build claude-code: %v\n%s", err, out)
	}
	more := client.commands()
	maps.Copy(more, modelCommands())
	more["wait-gone"] = cmdWaitGone
	runScripts(t, func(name string) bool {
		return !strings.HasPrefix(name, "page") && !strings.HasPrefix(name, "onpage") && (strings.Contains(name, "claude") || strings.Contains(name, "acpx"))
	}, more)
}

func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("stdout does not fit %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// cmdWaitGone waits until no run meets every condition.
func cmdWaitGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: wait-gone COND…")
	}
	conds := parseConds(ts, args)
	gone := within(30*time.Second, func() bool {
		runs, err := of(ts).runs()
		ts.Check(err)
		for _, r := range runs {
			raw, err := json.Marshal(r)
			ts.Check(err)
			if _, err := conds.match(raw); err == nil {
				return false
			}
		}
		return true
	})
	if !gone {
		ts.Fatalf("such a run is still there after 30 s")
	}
}
