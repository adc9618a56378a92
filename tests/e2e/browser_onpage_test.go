package e2e

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestOnPage runs the scripts whose names begin with "onpage": agents on the page of a real daemon in a real Chromium, a
// real one, Claude Code behind ACP, with a scripted model outside among them. Each has a file of Playwright tests of its own.
func TestOnPage(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end scripts need the real thing; run: make test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	modules, err := installNPM(ctx, filepath.Join(the.root, "tests/page"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("chromium is not installed; hack/prepare test installs it")
	}
	out, err := the.command(20*time.Minute, filepath.Join(the.bin, "handler"), "harness", "build", "claude-code", "--if-stale")
	if err != nil {
		t.Fatalf("handler harness build claude-code: %v\n%s", err, out)
	}
	more := map[string]command{"page": func(ts *testscript.TestScript, neg bool, args []string) { cmdPage(ts, neg, args, modules) }}
	maps.Copy(more, modelCommands())
	runScripts(t, func(name string) bool { return strings.HasPrefix(name, "onpage") }, more)
}
