// Package forward carries a port of a sandbox to the person's loopback. As HTTP it answers one random name under
// localhost and no other, so that it shares no cookie with anything and no page of the web reaches it by a name of its
// own that resolves to 127.0.0.1 (DNS rebinding); or as plain TCP, which anyone on the machine reaches.
//
// What comes from the sandbox is the agent's. It is passed on as it is: the person's browser treats it as it treats a
// page of the web.
package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/preview"
	"github.com/handlerd/handler/sandbox/duplex"
)

// Bounds of a forward.
const (
	MaxConnections = 100              // at one time; further ones wait to be accepted
	HeaderTime     = 10 * time.Second // for a browser to send the head of a request
	HeaderBytes    = 64 << 10         // of a request
	idleTime       = time.Minute      // of a connection that is kept
)

// Options of a Forward.
type Options struct {
	// Dial connects to the sandbox's port. Its errors are shown: they say what to do.
	Dial func(ctx context.Context) (duplex.Conn, error)
	// Listener is on a loopback address. Serve closes it.
	Listener net.Listener
	// TCP carries bytes as they are, instead of HTTP.
	TCP bool
}

// A Forward is a port that is open on the person's machine.
type Forward struct {
	o    Options
	name string // under localhost; "" for TCP
	port int
}

// New makes a forward with a name of its own; Serve starts it.
func New(o Options) (*Forward, error) {
	address, ok := o.Listener.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return nil, fmt.Errorf("a forward listens on a loopback address, not on %s", o.Listener.Addr())
	}
	f := &Forward{o: o, port: address.Port}
	if !o.TCP {
		f.name = strings.ToLower(rand.Text()) + ".localhost"
	}
	return f, nil
}

// Address is what a program connects to, host:port.
func (f *Forward) Address() string { return f.o.Listener.Addr().String() }

// URL is what a browser opens; "" for TCP.
func (f *Forward) URL() string {
	if f.o.TCP {
		return ""
	}
	return "http://" + f.host() + "/"
}

// host is the one Host that is answered, as browsers write it.
func (f *Forward) host() string {
	if f.port == 80 {
		return f.name
	}
	return net.JoinHostPort(f.name, strconv.Itoa(f.port))
}

// Serve carries connections until ctx is done; nothing of it is left then.
func (f *Forward) Serve(ctx context.Context) error {
	l := &limited{Listener: f.o.Listener, slots: make(chan struct{}, MaxConnections), closed: make(chan struct{})}
	defer l.Close()
	if f.o.TCP {
		return f.serveTCP(ctx, l)
	}
	return f.serveHTTP(ctx, l)
}

func (f *Forward) serveTCP(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w", f.Address(), err)
		}
		conns.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			in, err := f.o.Dial(ctx)
			if err != nil {
				return // the program sees the connection closed
			}
			duplex.Join(c.(duplex.Conn), in)
		})
	}
}

func (f *Forward) serveHTTP(ctx context.Context, l net.Listener) error {
	port := preview.NewPort(preview.PortOptions{Dial: func(ctx context.Context) (net.Conn, error) { return f.o.Dial(ctx) }})
	defer port.Close()
	ctx, cancel := context.WithCancel(ctx)
	var active sync.WaitGroup // requests, upgraded ones too
	defer active.Wait()
	defer cancel()
	answer := f.handler(port)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			active.Add(1)
			defer active.Done()
			answer.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: HeaderTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    HeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	// Upgraded connections are not the server's any more; the requests' context, which is theirs, ends them.
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(l)
	_ = server.Close()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("listen on %s: %w", f.Address(), err)
}

// handler answers the forward's own name, and says to everybody else that they are not meant.
func (f *Forward) handler(port http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != f.host() {
			preview.RefusePort(w, http.StatusMisdirectedRequest, "this is a forward of Handler's: it answers only the address that handler forward printed")
			return
		}
		port.ServeHTTP(w, r)
	})
}

// limited accepts a connection only while fewer than its slots are open.
type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &counted{c.(*net.TCPConn), sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted gives its slot back when it is closed.
type counted struct {
	*net.TCPConn
	done func()
}

func (c *counted) Close() error {
	defer c.done()
	return c.TCPConn.Close()
}
