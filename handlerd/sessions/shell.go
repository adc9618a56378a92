package sessions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// Bounds of the person's shells in a run.
const (
	MaxShells     = 8                // of one run at a time
	ShellTimeout  = 15 * time.Second // for the sandbox to open one and start its command
	shellWriteout = 10 * time.Second // for the sandbox to take a frame; it always should at once
	shellLastWord = time.Second      // for the client to take the last frame
)

// shells are those of one run. end comes once, when no new one may begin.
type shells struct {
	mu    sync.Mutex
	open  int  // protected by mu
	ended bool // protected by mu
	wg    sync.WaitGroup
}

// begin takes a place; done gives it back, once.
func (s *shells) begin(run string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, fault.New(fault.Failed, "see: handler ps", "the run %s is ending", run)
	}
	if s.open >= MaxShells {
		return nil, fault.New(fault.Failed, "leave one of them first", "the run %s has %d shells open, the most there can be", run, s.open)
	}
	s.open++
	s.wg.Add(1)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.wg.Done()
	}), nil
}

// end lets no more begin and waits for those there are, which the end of the run's context closes.
func (s *shells) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.wg.Wait()
}

// A Shell is a command of the person's inside a run, whose client has yet to come. Exactly one of Serve and Abort is
// called.
type Shell struct {
	run   *Run
	guest net.Conn
	r     *guestwire.ShellReader
	what  string // for the audit: the program's name, never its arguments
	done  func()
}

// Shell starts a command of the person's in the run whose id begins with id, and returns when it runs. It ends with its
// client, with its command and with the run. Errors are *fault.Fault.
func (m *Manager) Shell(ctx context.Context, id string, req types.ShellRequest) (*Shell, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	ask := guestwire.ShellRequest{Argv: req.Command, Terminal: req.Terminal, Term: req.Term, Rows: req.Rows, Cols: req.Cols}
	if err := ask.Check(); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "", "the shell in run %s", r.id)
	}
	if r.state.Load() != types.StateRunning {
		return nil, fault.New(fault.Failed, "see: handler ps", "the run %s is not running: it is %s", r.id, r.state.Load())
	}
	done, err := r.shells.begin(r.id)
	if err != nil {
		return nil, err
	}
	s := &Shell{run: r, what: "the sandbox's shell", done: done}
	if len(req.Command) > 0 {
		s.what = printable(path.Base(req.Command[0]), maxNamedBytes)
	}
	if err := s.open(ctx, ask); err != nil {
		s.close()
		return nil, err
	}
	if err := m.opts.Audit.Append(audit.Record{Kind: audit.KindShell, Run: r.id, Agent: r.plan.Agent, Subject: s.what, Reason: "began"}); err != nil {
		s.close()
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "the shell is not in the audit log, so it was not opened")
	}
	r.log.add("handlerd", "you opened "+s.what)
	return s, nil
}

// open asks the sandbox for a connection and the command. What it answers is the guest's word, or the agent's.
func (s *Shell) open(ctx context.Context, ask guestwire.ShellRequest) error {
	ctx, cancel := context.WithTimeout(ctx, ShellTimeout)
	defer cancel()
	failed := func(err error) error {
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer within %v", ShellTimeout)
		}
		return fault.Wrap(fault.Failed, err, "handler logs "+s.run.id, "the sandbox of run %s opens no shell", s.run.id)
	}
	var err error
	if s.guest, err = s.run.dir.OpenShell(ctx); err != nil {
		return failed(err)
	}
	deadline, _ := ctx.Deadline()
	_ = s.guest.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { s.guest.SetDeadline(time.Now()) })()
	if err := guestwire.NewShellWriter(s.guest).Write(guestwire.ShellFrame{Kind: guestwire.ShellOpen, Open: ask}); err != nil {
		return failed(err)
	}
	s.r = guestwire.NewShellReader(s.guest)
	f, err := s.r.Next()
	switch {
	case err != nil:
		return failed(err)
	case f.Kind == guestwire.ShellFailed:
		return fault.New(fault.Failed, "", "the sandbox of run %s says: %s", s.run.id, printable(f.Text, maxNotice))
	case f.Kind != guestwire.ShellStarted:
		return failed(errors.New("it speaks out of order"))
	}
	return s.guest.SetDeadline(time.Time{})
}

// Abort ends the shell without a client.
func (s *Shell) Abort() {
	s.tell("ended before its terminal came")
	s.close()
}

func (s *Shell) close() {
	if s.guest != nil {
		s.guest.Close()
	}
	s.done()
}

// Serve joins client, a stream of guestwire's shell frames, to the shell until either or the run ends. It closes
// client. The last frame that the client gets says how the command ended, or why there is no shell any more.
func (s *Shell) Serve(ctx context.Context, client net.Conn) error {
	defer s.close()
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.run.ctx, func() { cancel(errors.New("the run ended")) })()
	// Whatever ends it ends both directions. Reads of the client are not waited for: it is closed by then.
	defer context.AfterFunc(ctx, func() { s.guest.Close() })()

	out := guestwire.NewShellWriter(client)
	var input sync.WaitGroup
	input.Go(func() {
		cancel(s.carryInput(guestwire.NewShellReader(client)))
	})
	// A client that takes nothing must not keep the run from ending.
	stop := context.AfterFunc(ctx, func() { client.SetDeadline(time.Now().Add(shellLastWord)) })
	end, err := s.carryOutput(out)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	stop()
	_ = client.SetDeadline(time.Now().Add(shellLastWord))
	if err != nil {
		_ = out.Write(guestwire.ShellFrame{Kind: guestwire.ShellFailed, Text: err.Error()})
		s.tell("ended: " + err.Error())
	} else {
		s.tell(fmt.Sprintf("ended with exit code %d", end.Code))
		err = out.Write(end)
	}
	client.Close()
	s.guest.Close()
	input.Wait()
	return err
}

// errLeft is how a shell ends whose client goes.
var errLeft = errors.New("its terminal was closed")

// carryInput takes the client's frames to the sandbox. The client keeps the window, so that the sandbox always has room;
// one that takes nothing all the same is cut off, and so the client's end is always seen. A sandbox's end that is closed
// has ended, which carryOutput hears with the reason.
func (s *Shell) carryInput(r *guestwire.ShellReader) error {
	w := guestwire.NewShellWriter(s.guest)
	open := true
	for {
		f, err := r.Next()
		if err != nil {
			return errLeft
		}
		if f.FromGuest() || f.Kind == guestwire.ShellOpen {
			return errors.New("its client speaks out of order")
		}
		if !open {
			continue
		}
		_ = s.guest.SetWriteDeadline(time.Now().Add(shellWriteout))
		err = w.Write(f)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("the sandbox takes no input any more")
		}
		open = err == nil
	}
}

// carryOutput takes the sandbox's frames to the client and gives the last one.
func (s *Shell) carryOutput(w *guestwire.ShellWriter) (end guestwire.ShellFrame, err error) {
	for {
		f, err := s.r.Next()
		if err != nil {
			return f, errors.New("the sandbox closed it")
		}
		switch f.Kind {
		case guestwire.ShellOutput, guestwire.ShellErrors, guestwire.ShellTaken:
			if err := w.Write(f); err != nil {
				return f, errLeft
			}
		case guestwire.ShellExit:
			return f, nil
		default:
			return f, errors.New("the sandbox speaks out of order")
		}
	}
}

// tell writes down how the shell ended.
func (s *Shell) tell(how string) {
	s.run.audit(audit.Record{Kind: audit.KindShell, Subject: s.what, Reason: how})
	s.run.log.add("handlerd", "what you opened, "+s.what+", "+how)
}
