package sessions

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/duplex"
	"github.com/handlerd/handler/sandbox/fake"
)

// echoPort answers in capitals what it is told, once that has ended. The fake's sandbox has the host's loopback.
func echoPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				got, _ := io.ReadAll(c)
				_, _ = c.Write([]byte(strings.ToUpper(string(got))))
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// forward opens a port and gives its client and its end.
func (w *world) forward(t *testing.T, r *Run, port int) (client net.Conn, done chan error) {
	t.Helper()
	f, err := w.m.Forward(t.Context(), r.ID(), port, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	client, theirs := socketPair(t)
	done = make(chan error, 1)
	go func() { done <- f.Serve(t.Context(), theirs) }()
	return client, done
}

// through connects to a forwarded port.
func (w *world) through(t *testing.T, r *Run, port int) (client duplex.Conn, done chan error) {
	t.Helper()
	d, err := w.m.Dial(t.Context(), r.ID(), port)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := socketPair(t)
	_ = ours.SetDeadline(time.Now().Add(30 * time.Second))
	done = make(chan error, 1)
	go func() { done <- d.Serve(t.Context(), theirs) }()
	return ours.(duplex.Conn), done
}

// A port of the sandbox is reached only while its person has it open, each direction ends on its own, connections are
// bounded and give their places back, it is in the audit, and all of it ends with the run.
func TestForward(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	agent, ended := join(t, r)
	defer agent.Close()
	port := echoPort(t)
	if _, err := w.m.Dial(t.Context(), r.ID(), port); err == nil || fault.Of(err).Kind != fault.Refused {
		t.Errorf("a port that is not open: %v", err)
	}
	client, done := w.forward(t, r, port)
	for range 3 {
		c, served := w.through(t, r, port)
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "HELLO" {
			t.Errorf("%q %v", got, err)
		}
		c.Close()
		<-served
	}
	if _, err := w.m.Forward(t.Context(), r.ID(), port, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "forwarded already") {
		t.Errorf("twice: %v", err)
	}
	for _, bad := range []int{0, -1, 65536} {
		if _, err := w.m.Forward(t.Context(), r.ID(), bad, "127.0.0.1:1"); err == nil || fault.Of(err).Kind != fault.Usage {
			t.Errorf("port %d: %v", bad, err)
		}
	}
	var open []duplex.Conn
	var served []chan error
	for range MaxDials {
		c, s := w.through(t, r, port)
		open, served = append(open, c), append(served, s)
	}
	if _, err := w.m.Dial(t.Context(), r.ID(), port); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxDials)) {
		t.Errorf("one more: %v", err)
	}
	open[0].Close() // a client that goes is seen, although the server waits
	<-served[0]
	c, s := w.through(t, r, port)
	open, served = append(open[1:], c), append(served[1:], s)
	client.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.m.Dial(t.Context(), r.ID(), port); err == nil || fault.Of(err).Kind != fault.Refused {
		t.Errorf("after it was closed: %v", err)
	}
	again, done := w.forward(t, r, port)
	if err := w.m.Kill(t.Context(), r.ID()); err != nil {
		t.Fatal(err)
	}
	<-done
	for i := range served {
		<-served[i]
		open[i].Close()
	}
	again.Close()
	<-ended
	w.nothingLeft(t)
	w.audited(t, audit.KindStart, audit.KindForward, audit.KindForward, audit.KindForward, audit.KindForward, audit.KindStop)
}

// What nobody listens on is told in the sandbox's words, made safe, with what to do; the number of forwards is bounded;
// a client that speaks where nothing is to be said ends its forward.
func TestForwardRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	agent, ended := join(t, r)
	defer func() { agent.Close(); <-ended }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	client, done := w.forward(t, r, port)
	_, err = w.m.Dial(t.Context(), r.ID(), port)
	if f := fault.Of(err); err == nil || !strings.Contains(f.Text, "nothing listens on 127.0.0.1") || !strings.Contains(f.Hint, "start the server") {
		t.Errorf("%v", err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a client that speaks: no error")
	}
	var all []*Forward
	for n := range MaxForwards {
		f, err := w.m.Forward(t.Context(), r.ID(), 40000+n, "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if _, err := w.m.Forward(t.Context(), r.ID(), 39999, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxForwards)) {
		t.Errorf("one more: %v", err)
	}
	for _, f := range all {
		f.Abort()
	}
}
