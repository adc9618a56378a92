package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/duplex"
)

// Times and places of a display of the sandbox's own (A.6).
const (
	screenTime = 15 * time.Second      // for the compositor, and for the VNC server, to answer
	screenLook = 5 * time.Millisecond  // between two looks whether it does
	screenSaid = 2 << 10               // bytes of what they said last, for the error
	vncTime    = time.Second           // to connect to the VNC server that is there
	screenConf = "handler-screen.conf" // in the runtime folder, as are those below
	vncSocket  = "handler-vnc.sock"
	vncControl = "handler-vnc.ctl"
	vncHands   = "hands-" // before their names, of the VNC server that takes pointer and keys
)

// screenConfig is the compositor's: one output of a fixed size, and every window as large as it, the newest on top. A
// window that does not share the output keeps its size when another opens, so that a page is not laid out anew.
const screenConfig = `xwayland disable
output HEADLESS-1 resolution %[1]dx%[2]d position 0,0
output * bg #20242a solid_color
swaybg_command -
default_border none
default_floating_border none
focus_on_window_activation focus
for_window [title=".*"] floating enable, resize set %[1]d %[2]d, move position 0 0
`

// A screenSize is the value of --screen.
type screenSize struct{ width, height int }

func (s *screenSize) String() string { return fmt.Sprintf("%dx%d", s.width, s.height) }

// Set reads WIDTHxHEIGHT.
func (s *screenSize) Set(text string) error {
	w, h, ok := strings.Cut(text, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if !ok || errW != nil || errH != nil {
		return errors.New("it is not WIDTHxHEIGHT")
	}
	d := sandbox.Display{Mode: sandbox.DisplayVNC, Width: width, Height: height}
	if err := d.CheckScreen(); err != nil {
		return err
	}
	s.width, s.height = width, height
	return nil
}

// A screen is a display of the sandbox's own: a compositor without a screen (sway), and once somebody wants to see it,
// a VNC server (wayvnc), of which those who only watch have one without input. The agent has our uid: it may stop or imitate both.
type screen struct {
	dir string // the runtime folder
	env []string

	mu sync.Mutex // one VNC server is started at a time
}

// startScreen starts the compositor and waits until it answers; nil without one. env is the command's.
func startScreen(o options, env []string) (*screen, error) {
	if o.screen.width == 0 {
		return nil, nil
	}
	s := &screen{dir: lastValue(env, "XDG_RUNTIME_DIR")}
	if s.dir == "" {
		return nil, errors.New("display: there is no runtime folder")
	}
	if err := findPrograms(); err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, screenConf)
	if err := os.WriteFile(config, fmt.Appendf(nil, screenConfig, o.screen.width, o.screen.height), 0o600); err != nil {
		return nil, fmt.Errorf("display: %w", err)
	}
	// Nothing of the agent's: its home may hold what an earlier run left.
	s.env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + s.dir, "XDG_RUNTIME_DIR=" + s.dir,
		"WLR_BACKENDS=headless", "WLR_RENDERER=pixman", "WLR_LIBINPUT_NO_DEVICES=1", "WLR_HEADLESS_OUTPUTS=1"}
	p, err := s.spawn("sway", "-c", config)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(s.dir, filepath.Base(sandbox.ScreenTarget))
	err = p.await(func() bool { return answersSync(socket) }, func() bool {
		var status unix.WaitStatus
		pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG, nil) // nobody reaps yet
		return err == nil && pid == p.pid
	})
	if err != nil {
		_ = unix.Kill(p.pid, unix.SIGKILL)
		return nil, err
	}
	s.env = append(s.env, "WAYLAND_DISPLAY="+socket)
	return s, nil
}

// findPrograms makes sure that both are there, so that a display which nobody could watch is not begun.
func findPrograms() error {
	for _, name := range []string{"sway", "wayvnc"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("display: %s is not in the toolbox; build it again: handler toolbox build", name)
		}
	}
	return nil
}

// lastValue is a variable's in an environment where the last one counts.
func lastValue(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// A part is one program of a screen, and the end of what it said.
type part struct {
	name string
	pid  int

	mu   sync.Mutex
	said []byte
}

// spawn starts a program in a session of its own. What it says is read to its end, and the last of it kept.
func (s *screen) spawn(argv ...string) (*part, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("display: %w", err)
	}
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("display: %w", err)
	}
	defer null.Close()
	pid, _, err := fork(argv, s.env, []uintptr{null.Fd(), w.Fd(), w.Fd()}, &syscall.SysProcAttr{Setsid: true})
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("display: %w", err)
	}
	p := &part{name: argv[0], pid: pid}
	go p.listen(r)
	return p, nil
}

func (p *part) listen(r *os.File) {
	defer r.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		p.mu.Lock()
		p.said = append(p.said, buf[:n]...)
		p.said = append([]byte(nil), p.said[max(0, len(p.said)-screenSaid):]...)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until the part answers, has ended, or takes too long.
func (p *part) await(answers, ended func() bool) error {
	late := time.After(screenTime)
	tick := time.NewTicker(screenLook)
	defer tick.Stop()
	for {
		if answers() {
			return nil
		}
		if ended() {
			return p.failed("ended at once")
		}
		select {
		case <-late:
			return p.failed(fmt.Sprintf("did not answer within %v", screenTime))
		case <-tick.C:
		}
	}
}

func (p *part) failed(how string) error {
	p.mu.Lock()
	said := strings.TrimSpace(string(p.said))
	p.mu.Unlock()
	text := "display: " + p.name + " of the toolbox " + how
	if said != "" {
		text += "; it said last:\n" + said
	}
	return errors.New(text)
}

// answersSync asks a compositor for a roundtrip: wl_display.sync for a new object 2.
func answersSync(socket string) bool {
	c, err := net.DialTimeout("unix", socket, vncTime)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(screenTime))
	var ask []byte
	for _, word := range []uint32{1, 12 << 16, 2} {
		ask = binary.NativeEndian.AppendUint32(ask, word)
	}
	if _, err := c.Write(ask); err != nil {
		return false
	}
	_, err = io.ReadFull(c, make([]byte, 12))
	return err == nil
}

// dial connects to the VNC server, which is started where none answers; with hands to the one that takes pointer and keys.
func (s *screen) dial(hands bool) (duplex.Conn, error) {
	if s == nil {
		return nil, errors.New("this sandbox has no display of its own")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix, input := "", []string{"--disable-input"}
	if hands {
		prefix, input = vncHands, nil
	}
	path, control := filepath.Join(s.dir, prefix+vncSocket), filepath.Join(s.dir, prefix+vncControl)
	if c, err := dialUnix(path); err == nil {
		return c, nil
	}
	for _, name := range []string{path, control} { // of one that was killed
		_ = os.Remove(name)
	}
	p, err := s.spawn(append(append([]string{"wayvnc", "--unix-socket", "--render-cursor", "--max-fps=30", "--socket=" + control}, input...), path)...)
	if err != nil {
		return nil, err
	}
	var c duplex.Conn
	err = p.await(func() bool {
		c, err = dialUnix(path)
		return err == nil
	}, func() bool { return errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) }) // the reaper has taken its end
	if err != nil {
		_ = unix.Kill(p.pid, unix.SIGKILL)
		return nil, err
	}
	return c, nil
}

func dialUnix(path string) (duplex.Conn, error) {
	c, err := net.DialTimeout("unix", path, vncTime)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
