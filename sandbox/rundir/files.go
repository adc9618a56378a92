package rundir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// filesTime bounds the transfer, from the guest's connect to its answer.
const filesTime = 30 * time.Second

// A FileServer hands a Spec's files to one guest. A driver makes one before it starts the sandbox, waits for it
// after, and closes it in any case.
type FileServer struct {
	l      net.Listener
	done   chan struct{}
	result error // valid after done

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

// ServeFiles listens on files.sock in the run directory dir and serves files to the first connection. The socket
// goes away with that. It fails with a *sandbox.SpecError for files that cannot be sent.
func ServeFiles(dir string, files []sandbox.File) (*FileServer, error) {
	if err := guestwire.CheckFiles(files); err != nil {
		return nil, err
	}
	l, err := listen(filepath.Join(dir, sandbox.SocketFiles), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s := &FileServer{l: l, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.result = s.serve(files)
	}()
	return s, nil
}

func (s *FileServer) serve(files []sandbox.File) error {
	conn, err := s.l.Accept()
	_ = s.l.Close()
	if err != nil {
		return fmt.Errorf("hand files to the guest: %w", err)
	}
	defer conn.Close()
	s.mu.Lock()
	s.conn = conn
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if err := conn.SetDeadline(time.Now().Add(filesTime)); err != nil {
		return err
	}
	writeErr := guestwire.WriteFiles(conn, files)
	// A guest that fails half-way stops reading; what it answered says more than the broken write.
	f, err := guestwire.NewReader(conn).Next()
	switch {
	case err == nil && f.Kind == guestwire.Failed:
		return errors.New("the guest could not write the files: " + string(bytes.ToValidUTF8([]byte(f.Text), nil)))
	case writeErr != nil:
		return fmt.Errorf("hand files to the guest: %w", writeErr)
	case err != nil:
		return fmt.Errorf("hand files to the guest: %w", err)
	case f.Kind != guestwire.Written:
		return fmt.Errorf("hand files to the guest: it answered %s", f.Kind)
	}
	return nil
}

// Wait returns nil when the guest has written all files. It may be called more than once.
func (s *FileServer) Wait(ctx context.Context) error {
	select {
	case <-s.done:
		return s.result
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the serving, whether someone came or not, and removes the socket. It is idempotent.
func (s *FileServer) Close() {
	s.mu.Lock()
	s.closed = true
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.mu.Unlock()
	_ = s.l.Close()
	<-s.done
}
