package view

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

// Serve answers a WebSocket request with the view, until either side or the grant ends. The viewer is told why in the
// WebSocket's last words. The request's Origin must be its Host, or there must be none.
func (v *Visit) Serve(w http.ResponseWriter, r *http.Request) error {
	why := io.EOF // what the grant is told
	defer func() { v.leave(why) }()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"binary"}})
	if err != nil {
		return err // it was answered
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxWaiting)
	ctx, cancel := context.WithCancelCause(v.grant.Context)
	defer context.AfterFunc(v.desk.ctx, func() { cancel(ErrClosed) })()
	life, ended := context.WithCancel(context.WithoutCancel(r.Context()))
	defer ended()
	var work sync.WaitGroup
	defer work.Wait()
	// Nothing but this ends the WebSocket, so that its last words get through. The stream over it has a life of its own.
	work.Go(func() {
		<-ctx.Done()
		_ = ws.Close(lastWords(context.Cause(ctx)))
	})
	err = v.relay(ctx, cancel, ws, websocket.NetConn(life, ws, websocket.MessageBinary))
	if err == nil {
		err = io.EOF
	}
	cancel(err) // where nothing came before
	if why = context.Cause(ctx); over(why) {
		return nil
	}
	return why
}

// lastWords are what a viewer is told at the end: at most 123 bytes.
func lastWords(err error) (websocket.StatusCode, string) {
	var protocol *ProtocolError
	switch {
	case over(err):
		return websocket.StatusNormalClosure, ""
	case errors.As(err, &protocol):
		return websocket.StatusPolicyViolation, shorten(protocol.Error())
	}
	return websocket.StatusGoingAway, shorten(err.Error())
}

func shorten(text string) string {
	const most = 120
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// relay joins a viewer to the display until one of them ends or ctx does, and returns when nothing is left of that.
func (v *Visit) relay(ctx context.Context, cancel context.CancelCauseFunc, ws *websocket.Conn, viewer net.Conn) error {
	dialed, done := context.WithTimeout(ctx, DialTime)
	display, err := v.grant.Dial(dialed)
	done()
	if err != nil {
		return err
	}
	defer display.Close()
	in := &filter{from: bufio.NewReader(viewer), to: patient{display}}
	defer in.letGo(display)
	defer context.AfterFunc(ctx, func() { in.letGo(display); display.Close() })()
	_ = display.SetDeadline(time.Now().Add(GreetTime))
	s, err := greet(display)
	if err != nil {
		return ending(unexpected(err), badServer)
	}
	_ = display.SetDeadline(time.Time{})
	timer := time.AfterFunc(GreetTime, func() { cancel(badViewer("did not say hello within %v", GreetTime)) })
	err = receive(viewer, s, v.grant.Name)
	timer.Stop()
	if err != nil {
		return ending(unexpected(err), badViewer)
	}
	if v.grant.Hands > 0 {
		idle := time.AfterFunc(v.grant.Hands, func() { cancel(ErrIdle) })
		defer idle.Stop()
		in.takeHold(func() { idle.Reset(v.grant.Hands) })
	}
	out := &updates{from: bufio.NewReaderSize(display, relayBuffer), to: bufio.NewWriterSize(patient{viewer}, relayBuffer), screen: s}
	// The first to end says why, and its end ends the others: by ctx.
	var work sync.WaitGroup
	work.Go(func() { cancel(ending(in.run(ctx), badViewer)) })
	work.Go(func() { cancel(ending(out.run(), badServer)) })
	work.Go(func() { watch(ctx, cancel, ws) })
	work.Wait()
	return context.Cause(ctx)
}

// over tells an end that nobody is to blame for: one between two messages, one of our own making, or that the viewer closed
// its WebSocket, with whatever status: a page that goes says none.
func over(err error) bool {
	return err == nil || websocket.CloseStatus(err) >= 0 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

// ending says whose end it was: io.EOF where nobody is to blame, bad's error where it came in the middle of a message.
func ending(err error, bad func(string, ...any) error) error {
	switch {
	case over(err):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return bad("ended in the middle of a message")
	}
	return err
}

// errAway is how a viewer that does not answer ends.
var errAway = errors.New("the viewer did not answer any more")

// watch asks now and then whether the viewer is still there: one whose machine sleeps says no goodbye.
func watch(ctx context.Context, cancel context.CancelCauseFunc, ws *websocket.Conn) {
	tick := time.NewTicker(PingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked, done := context.WithTimeout(ctx, PingTime)
		err := ws.Ping(asked)
		done()
		if err != nil {
			cancel(errAway)
			return
		}
	}
}

// A patient writes within SendTime, or not at all.
type patient struct{ net.Conn }

func (p patient) Write(b []byte) (int, error) {
	_ = p.SetWriteDeadline(time.Now().Add(SendTime))
	return p.Conn.Write(b)
}
