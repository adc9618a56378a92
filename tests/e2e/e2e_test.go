package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// the is the suite that TestMain made; nil with -short and as root.
var the *suite

// A suite is what all scripts share: one daemon, one podman storage (the person's own: images take minutes to build),
// and configuration, state and home folder of the suite's own.
type suite struct {
	root string // of the module
	bin  string // bin/: the programs under test
	base string // of config/, state/, home/ and tools/; removed at the end

	config  string // Handler's: base/config/handler
	state   string // Handler's: base/state/handler
	home    string
	tools   string // programs that tests run, such as probe
	data    string // XDG_DATA_HOME
	runtime string // XDG_RUNTIME_DIR
}

func TestMain(m *testing.M) {
	if os.Getenv(fullDisk) != "" {
		insideFullDisk(os.Args)
	}
	flag.Parse()
	os.Exit(run(m))
}

// run is TestMain with an end that defer can see.
func run(m *testing.M) int {
	switch {
	case testing.Short():
		fmt.Fprintln(os.Stderr, "e2e: THE END-TO-END SCRIPTS ARE SKIPPED (-short). Run: make test")
		return m.Run()
	case os.Geteuid() == 0:
		fmt.Fprintln(os.Stderr, "e2e: Handler is rootless, and so are its end-to-end tests. Run: make test (it goes on as an ordinary user)")
		return 1
	}
	s, err := newSuite()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(s.base)
	if err := s.begin(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	the = s
	code := m.Run()
	if err := s.end(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: FAIL: after the last script:", err)
		return max(code, 1)
	}
	return code
}

func newSuite() (*suite, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	s := &suite{root: root, bin: filepath.Join(root, "bin")}
	for _, name := range []string{"handler", "handlerd", "handler-guest", "handler-demo-agent"} {
		if _, err := os.Stat(filepath.Join(s.bin, name)); err != nil {
			return nil, fmt.Errorf("bin/%s is not built. Run: make build", name)
		}
	}
	if s.runtime = os.Getenv("XDG_RUNTIME_DIR"); s.runtime == "" {
		s.runtime = fmt.Sprintf("/run/user/%d", os.Getuid())
	}
	if s.data = os.Getenv("XDG_DATA_HOME"); s.data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		s.data = filepath.Join(home, ".local/share")
	}
	if s.base, err = os.MkdirTemp("", "handler-e2e-"); err != nil {
		return nil, err
	}
	s.config, s.state = filepath.Join(s.base, "config/handler"), filepath.Join(s.base, "state/handler")
	s.home, s.tools = filepath.Join(s.base, "home"), filepath.Join(s.base, "tools")
	return s, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the test")
}

// env is the environment of every program of Handler that a test starts: the suite's own folders, and of ours only
// what a person's shell would have.
func (s *suite) env() []string {
	env := []string{
		"PATH=" + s.bin + ":" + s.tools + ":" + os.Getenv("PATH"),
		"HOME=" + s.home, "XDG_CONFIG_HOME=" + filepath.Dir(s.config), "XDG_STATE_HOME=" + filepath.Dir(s.state),
		"XDG_DATA_HOME=" + s.data, "XDG_RUNTIME_DIR=" + s.runtime, "NO_COLOR=1",
	}
	for _, name := range []string{"USER", "LOGNAME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// begin makes everything that scripts need. A daemon with the person's own configuration uses the same podman, so it
// has to end first.
func (s *suite) begin() error {
	for _, dir := range []string{s.home, s.tools} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := s.clean(); err != nil {
		return err
	}
	if runs, err := s.runs(); err != nil || len(runs) > 0 {
		return fmt.Errorf("%d runs of yours live, and the tests end the daemon; end them first: handler ps, handler kill RUN (%v)", len(runs), err)
	}
	if out, err := s.command(30*time.Second, filepath.Join(s.bin, "handler"), "daemon", "stop"); err != nil {
		return fmt.Errorf("the daemon that runs does not end: %w\n%s", err, out)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(s.tools, "probe"), "./tests/e2e/probe")
	build.Dir, build.Env = s.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./tests/e2e/probe: %w\n%s", err, out)
	}
	return s.images()
}

// images builds what is missing or stale of what the scripts run in. hack/test has done so already.
func (s *suite) images() error {
	fmt.Fprintln(os.Stderr, "e2e: the toolbox, the playwright addon and the demo harness are built if they are missing or stale; the first time takes minutes")
	for _, args := range [][]string{
		{"toolbox", "build", "--if-stale"},
		{"addon", "build", "playwright", "--if-stale"},
		{"harness", "build", "demo", "--if-stale"},
	} {
		if out, err := s.command(30*time.Minute, filepath.Join(s.bin, "handler"), args...); err != nil {
			return fmt.Errorf("handler %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// clean gives the next script an empty configuration and home folder.
func (s *suite) clean() error {
	if err := errors.Join(os.RemoveAll(s.config), os.RemoveAll(s.home)); err != nil {
		return err
	}
	for _, dir := range []string{"agents", "harness", "addons"} {
		if err := os.MkdirAll(filepath.Join(s.config, dir), 0o700); err != nil {
			return err
		}
	}
	return os.MkdirAll(s.home, 0o700)
}

// command runs a program with the suite's environment and gives what it wrote.
func (s *suite) command(limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = s.env(), "/"
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took longer than %v", limit)
	}
	return string(out), err
}

// end stops the daemon and says what is left of it and of all runs (A.5).
func (s *suite) end() error {
	runs, err := s.runs()
	if err == nil && len(runs) > 0 {
		err = fmt.Errorf("runs are left: %v", runs)
	}
	within(stopBound, func() bool { return len(s.allLeft(true)) == 0 })
	left := s.allLeft(true)
	out, stopErr := s.command(60*time.Second, filepath.Join(s.bin, "handler"), "daemon", "stop")
	if stopErr != nil {
		stopErr = fmt.Errorf("handler daemon stop: %w\n%s", stopErr, out)
	}
	within(stopBound, func() bool { return len(s.allLeft(false)) == 0 })
	left = append(left, s.allLeft(false)...)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("this is left:\n  %s", strings.Join(left, "\n  ")))
	}
	return errors.Join(err, stopErr)
}

// TestScripts runs every script but those of the tests that have a function of their own.
func TestScripts(t *testing.T) {
	runScripts(t, func(name string) bool {
		if strings.HasPrefix(name, "page") || strings.HasPrefix(name, "onpage") || isView(name) {
			return false
		}
		for _, other := range []string{"claude", "acpx", "display", "model", "inspector"} {
			if strings.Contains(name, other) {
				return false
			}
		}
		return true
	}, nil)
}
