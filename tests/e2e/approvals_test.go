package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A watcher is a person who is there to be asked: a `handler approvals watch --json` and what it was told.
type watcher struct {
	cmd *exec.Cmd

	mu    sync.Mutex
	lines []string // protected by mu
	next  int      // protected by mu; lines before it were matched or passed over
}

func (w *watcher) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		w.mu.Lock()
		w.lines = append(w.lines, lines.Text())
		w.mu.Unlock()
	}
}

// cmdBeThere begins to watch, and returns when somebody counts as being there.
func cmdBeThere(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if neg || s.there != nil {
		ts.Fatalf("usage: be-there [FLAG…], once until be-gone")
	}
	w := &watcher{cmd: exec.Command(filepath.Join(s.bin, "handler"), append([]string{"approvals", "watch", "--json"}, args...)...)}
	w.cmd.Env, w.cmd.Dir = scriptEnv(ts), ts.MkAbs(".")
	out, err := w.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(w.cmd.Start())
	go w.read(out)
	s.there = w
	ts.Defer(func() { s.beGone() })
	cmdTold(ts, false, []string{"state=watching"})
}

// cmdBeGone ends it as Ctrl-C does.
func cmdBeGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 || of(ts).there == nil {
		ts.Fatalf("usage: be-gone, after be-there")
	}
	ts.Check(of(ts).beGone())
}

func (s *script) beGone() error {
	if s.there == nil {
		return nil
	}
	w := s.there
	s.there = nil
	_ = w.cmd.Process.Signal(os.Interrupt) // it may have ended with the daemon
	return w.cmd.Wait()
}

// cmdTold waits until the watcher was told something, after what earlier ones found, that meets every condition.
func cmdTold(ts *testscript.TestScript, neg bool, args []string) {
	w := of(ts).there
	if neg || w == nil || len(args) == 0 {
		ts.Fatalf("usage: told COND…, after be-there")
	}
	conds := parseConds(ts, args)
	found := within(30*time.Second, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := w.next; i < len(w.lines); i++ {
			if vars, err := conds.match([]byte(w.lines[i])); err == nil {
				setAll(ts, vars)
				w.next = i + 1
				return true
			}
		}
		return false
	})
	if !found {
		w.mu.Lock()
		defer w.mu.Unlock()
		ts.Fatalf("nothing of that kind in %q", w.lines[w.next:])
	}
}
