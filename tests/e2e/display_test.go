package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDisplay shows real windows of a sandbox on a compositor of the test's own.
func TestDisplay(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end scripts need the real thing; run: make test")
	}
	for _, program := range []string{"weston", "weston-debug", "weston-screenshooter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v. Run: make test (it installs weston)", err)
		}
	}
	more := westonCommands()
	more["capture"] = cmdCapture
	runScripts(t, func(name string) bool { return strings.Contains(name, "display") }, more)
}

// westonConfig: --debug and desktop-shell are what lets a client take pictures; kiosk-shell gives black ones.
const westonConfig = "[core]\nshell=desktop-shell.so\n[shell]\npanel-position=none\nlocking=false\nstartup-animation=none\nanimation=none\n"

// A weston is one compositor without a screen.
type weston struct {
	socket string
	cmd    *exec.Cmd
	done   chan struct{}
}

// westonCommands are what scripts have about displays:
//
//	weston NAME               starts a compositor on $XDG_RUNTIME_DIR/NAME
//	weston-kill NAME          kills it so that it leaves its socket and its lock
//	[!] window NAME REGEXP    it shows a window whose title fits, within 20 s ("!": it shows none)
//	colour NAME RRGGBB PART   of its screen, within 10 s, at least PART percent have this colour
//	poll-file FILE REGEXP     the file has a line that fits within 20 s: what it tells of may come late
//	wait-file FILE            the file is there within 30 s: a sandbox has come so far
func westonCommands() map[string]command {
	all := map[string]*weston{}
	get := func(ts *testscript.TestScript, args []string, n int) *weston {
		if len(args) != n || all[args[0]] == nil {
			ts.Fatalf("it wants %d arguments, the first of them a NAME of weston", n)
		}
		return all[args[0]]
	}
	return map[string]command{
		"weston": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 1 {
				ts.Fatalf("usage: weston NAME")
			}
			all[args[0]] = startWeston(ts, args[0])
			ts.Defer(func() { all[args[0]].kill(); delete(all, args[0]) })
		},
		"weston-kill": func(ts *testscript.TestScript, _ bool, args []string) { get(ts, args, 1).kill() },
		"window":      func(ts *testscript.TestScript, neg bool, args []string) { get(ts, args, 2).window(ts, neg, args[1]) },
		"wait-file": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 1 {
				ts.Fatalf("usage: wait-file FILE")
			}
			there := within(30*time.Second, func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil })
			if !there {
				ts.Fatalf("it is not there after 30 s")
			}
		},
		"poll-file": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 2 {
				ts.Fatalf("usage: poll-file FILE REGEXP")
			}
			re, err := regexp.Compile(args[1])
			ts.Check(err)
			var said []byte
			if !within(20*time.Second, func() bool { said, _ = os.ReadFile(ts.MkAbs(args[0])); return re.Match(said) }) {
				ts.Fatalf("it has no such line: %.4000s", said)
			}
		},
		"colour": func(ts *testscript.TestScript, _ bool, args []string) {
			get(ts, args, 3).colour(ts, args[1], args[2])
		},
	}
}

func startWeston(ts *testscript.TestScript, name string) *weston {
	dir := ts.Getenv("XDG_RUNTIME_DIR")
	config := filepath.Join(ts.Getenv("WORK"), "weston.ini")
	ts.Check(os.WriteFile(config, []byte(westonConfig), 0o600))
	w := &weston{socket: filepath.Join(dir, name), done: make(chan struct{})}
	log := filepath.Join(ts.Getenv("WORK"), name+".log")
	w.cmd = exec.Command("weston", "--debug", "--backend=headless-backend.so", "--socket="+name, "--width=1280", "--height=800",
		"--idle-time=0", "--use-pixman", "--config="+config, "--log="+log)
	w.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "XDG_RUNTIME_DIR=" + dir}
	ts.Check(w.cmd.Start())
	go func() {
		defer close(w.done)
		_ = w.cmd.Wait() // how it ends is of no interest
	}()
	lives := within(20*time.Second, func() bool {
		conn, err := net.Dial("unix", w.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if !lives {
		w.kill()
		said, _ := os.ReadFile(log)
		ts.Fatalf("weston did not come up: %s", said)
	}
	return w
}

func (w *weston) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.done
}

// client runs a client of the compositor and gives what it wrote; weston-debug goes on until it is ended.
func (w *weston) client(ts *testscript.TestScript, limit time.Duration, dir, name string, args ...string) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "XDG_RUNTIME_DIR=" + filepath.Dir(w.socket), "WAYLAND_DISPLAY=" + w.socket}
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	return out.Bytes()
}

// windows gives the compositor's own list of what it shows, a line each.
func (w *weston) windows(ts *testscript.TestScript) []string {
	var lines []string
	for line := range strings.Lines(string(w.client(ts, time.Second, "", "weston-debug", "scene-graph"))) {
		if strings.Contains(line, "xdg_toplevel") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func (w *weston) window(ts *testscript.TestScript, neg bool, pattern string) {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	var shown []string
	limit := 20 * time.Second
	if neg {
		limit = 0 // now
	}
	found := within(limit, func() bool {
		shown = w.windows(ts)
		for _, line := range shown {
			if re.MatchString(line) {
				ts.Logf("%s", line)
				return true
			}
		}
		return false
	})
	if found == neg {
		ts.Fatalf("the windows are %q", shown)
	}
}

func (w *weston) colour(ts *testscript.TestScript, want, part string) {
	var least, got int
	_, err := fmt.Sscan(part, &least)
	ts.Check(err)
	ok := within(10*time.Second, func() bool {
		got = w.partOf(ts, want)
		return got >= least
	})
	if !ok {
		ts.Fatalf("%d %% of the screen are #%s", got, want)
	}
	ts.Logf("%d %% of the screen are #%s", got, want)
}

// partOf takes a picture of the screen and gives the percentage of it that has a colour.
func (w *weston) partOf(ts *testscript.TestScript, want string) int {
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "screen-")
	ts.Check(err)
	defer os.RemoveAll(dir)
	w.client(ts, 5*time.Second, dir, "weston-screenshooter")
	files, err := filepath.Glob(filepath.Join(dir, "*.png"))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("weston-screenshooter made %d pictures", len(files))
	}
	f, err := os.Open(files[0])
	ts.Check(err)
	defer f.Close()
	img, _, err := image.Decode(f)
	ts.Check(err)
	b, n := img.Bounds(), 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			if fmt.Sprintf("%02x%02x%02x", r>>8, g>>8, bl>>8) == want {
				n++
			}
		}
	}
	return n * 100 / (b.Dx() * b.Dy())
}
