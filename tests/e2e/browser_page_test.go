package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// pageLimit bounds one file of tests in the browser.
const pageLimit = 5 * time.Minute

// TestPage drives the page of a real daemon in a real Chromium, by Playwright's test runner.
// It comes before the scripts that spoil the configuration on purpose (files run in the order of their names).
func TestPage(t *testing.T) {
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
	more := map[string]command{"page": func(ts *testscript.TestScript, neg bool, args []string) { cmdPage(ts, neg, args, modules) }}
	runScripts(t, func(name string) bool { return strings.HasPrefix(name, "page") }, more)
}

// cmdPage runs a file of tests/page against the script's daemon:
//
//	page FILE [NAME=VALUE…]   with more in its environment, besides the script's
func cmdPage(ts *testscript.TestScript, neg bool, args []string, modules string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: page FILE [NAME=VALUE…]")
	}
	dir := ts.MkAbs("page-tests")
	ts.Check(os.MkdirAll(dir, 0o755))
	sources, err := filepath.Glob(filepath.Join(the.root, "tests/page/*.ts"))
	ts.Check(err)
	for _, source := range append(sources, filepath.Join(the.root, "tests/page/package.json")) {
		data, err := os.ReadFile(source)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(dir, filepath.Base(source)), data, 0o644))
	}
	link := filepath.Join(dir, "node_modules")
	if _, err := os.Lstat(link); err != nil {
		ts.Check(os.Symlink(filepath.Join(modules, "node_modules"), link))
	}
	ctx, cancel := context.WithTimeout(context.Background(), pageLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(modules, "node_modules/.bin/playwright"), "test", args[0])
	cmd.Dir = dir
	cmd.Env = append(scriptEnv(ts), "HANDLER="+filepath.Join(of(ts).bin, "handler"), "HANDLER_PAGE_PICTURES="+os.Getenv("HANDLER_PAGE_PICTURES"))
	cmd.Env = append(cmd.Env, args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	ts.Logf("%s", out.String())
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(the.state, "handlerd.log"))
		ts.Logf("the daemon's log ends:\n%s", log[max(0, len(log)-8<<10):])
	}
	ts.Check(err)
}
