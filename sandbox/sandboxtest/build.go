package sandboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildGuest builds handler-guest, static, into dir and returns its path. It wants the go command and a working
// directory inside the module, as tests have. Build once a test binary: it takes a second.
func BuildGuest(dir string) (string, error) {
	return build(filepath.Join(dir, "handler-guest"), "github.com/handlerd/handler/cmd/handler-guest")
}

// BuildProbe builds the program that the suite runs inside sandboxes, like BuildGuest.
func BuildProbe(dir string) (string, error) {
	return build(filepath.Join(dir, "probe"), "github.com/handlerd/handler/sandbox/sandboxtest/probe")
}

func build(out, pkg string) (string, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}
