package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// acpx is the real ACP client of the tests, as installed by installACPX.
type acpx struct {
	program string // acpx, a script of Node's
	node    string // the folder of the Node that it wants
}

// installACPX installs what npm/package-lock.json says into the person's cache, once for each lock file. No install
// scripts run. Platform packages that a registry may lack are overridden in package.json, so that the lock is whole.
func installACPX(ctx context.Context, root string) (*acpx, error) {
	dir, err := installNPM(ctx, filepath.Join(root, "tests/e2e/npm"))
	if err != nil {
		return nil, err
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return &acpx{program: filepath.Join(dir, "node_modules/.bin/acpx"), node: filepath.Join(dir, "node_modules/node-linux-"+arch, "bin")}, nil
}

// installNPM installs what from's package-lock.json says and gives the folder with node_modules.
func installNPM(ctx context.Context, from string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	files := map[string][]byte{}
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join(from, name)); err != nil {
			return "", err
		}
		sum.Write(files[name])
	}
	parent := filepath.Join(cache, "handler-test/npm")
	dir := filepath.Join(parent, hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // it is renamed into place when it is whole
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", from, err, out)
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// acpxLimit bounds one command of acpx, a whole turn of an agent with a browser.
const acpxLimit = 2 * time.Minute

// acpxCommands are what scripts have about acpx:
//
//	acpx [--FLAG[=VALUE]…] AGENT WORD…   acpx FLAG… --agent "handler acp AGENT" WORD…, in the current folder; its stdout
//	                                     is the raw ACP messages of both directions, pictures as paths of files
//	capture NAME REGEXP                  sets NAME to what the first group of REGEXP holds in stdout
func (a *acpx) commands() map[string]command {
	return map[string]command{"acpx": a.run, "capture": cmdCapture}
}

func (a *acpx) run(ts *testscript.TestScript, neg bool, args []string) {
	flags := []string{"--format", "json", "--json-strict"}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, ok := strings.Cut(args[0], "=")
		if flags = append(flags, name); ok {
			flags = append(flags, value)
		}
		args = args[1:]
	}
	if len(args) < 2 {
		ts.Fatalf("usage: acpx [--FLAG[=VALUE]…] AGENT WORD…")
	}
	ctx, cancel := context.WithTimeout(context.Background(), acpxLimit)
	defer cancel()
	agent := filepath.Join(of(ts).bin, "handler") + " acp " + args[0]
	cmd := exec.CommandContext(ctx, a.program, append(append(flags, "--agent", agent), args[1:]...)...)
	cmd.Env = append(scriptEnv(ts), "PATH="+a.node+":"+ts.Getenv("PATH")) // the last one counts
	cmd.Dir = ts.MkAbs(".")
	cmd.WaitDelay = 5 * time.Second // its queue owner, which lives on, may hold the output
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	ts.Logf("acpx took %v", time.Since(began).Round(10*time.Millisecond))
	out, takeErr := takeImages(ts.Getenv("WORK"), stdout.Bytes())
	ts.Check(takeErr)
	_, _ = ts.Stdout().Write(out) // strings.Builders
	_, _ = ts.Stderr().Write(stderr.Bytes())
	if ctx.Err() != nil {
		ts.Fatalf("acpx took longer than %v: %s", acpxLimit, stderr.String())
	}
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if !errors.Is(err, exec.ErrWaitDelay) {
		ts.Check(err)
	}
	wantCode(ts, neg, code)
}

// longBase64 is a picture within a message.
var longBase64 = regexp.MustCompile(`"[A-Za-z0-9+/]{1000,}={0,2}"`)

// takeImages puts the pictures of messages into files beside the script, so that a log can be read, and their paths
// into the messages. What an agent says of its commands fills a log too, and is left out.
func takeImages(dir string, out []byte) ([]byte, error) {
	var failed error
	lines := bytes.SplitAfter(out, []byte("\n"))
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"available_commands_update"`)) })
	out = bytes.Join(lines, nil)
	out = longBase64.ReplaceAllFunc(out, func(quoted []byte) []byte {
		data, err := base64.StdEncoding.DecodeString(string(bytes.Trim(quoted, `"`)))
		if err != nil {
			return quoted // it only looked like one
		}
		sum := sha256.Sum256(data)
		path := filepath.Join(dir, hex.EncodeToString(sum[:])[:16]+".image")
		failed = errors.Join(failed, os.WriteFile(path, data, 0o600))
		return []byte(`"` + path + `"`)
	})
	return out, failed
}
