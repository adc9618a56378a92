package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestPageView watches displays on the page of a real daemon in a real Chromium.
func TestPageView(t *testing.T) {
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
	runScripts(t, isView, more)
}

// isView tells the scripts of TestPageView.
func isView(name string) bool { return strings.HasPrefix(name, "view-") }
