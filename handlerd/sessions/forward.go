package sessions

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/duplex"
)

// A Forward is a port of a run's sandbox that the person has open: while it is, Dial reaches it. Its client has yet to
// come; exactly one of Serve and Abort is called.
type Forward struct {
	run    *Run
	port   int
	listen netip.AddrPort // where the person's own program listens for it
	used   atomic.Int64   // connections that were made
}

// Forward opens a port of the run whose id begins with id to its person, and writes that down. It reaches the sandbox
// only by Dial. A port that is open already is refused: its connections could not be told apart. listener is the loopback
// address and port where the person's program listens for it, which no sandbox reaches while it is open (D.4). Errors are
// *fault.Fault.
func (m *Manager) Forward(_ context.Context, id string, port int, listener string) (*Forward, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if err := checkPort(port); err != nil {
		return nil, err
	}
	listen, err := netip.ParseAddrPort(listener)
	if err != nil || !listen.Addr().Unmap().IsLoopback() || listen.Port() == 0 {
		return nil, fault.New(fault.Usage, "listen on 127.0.0.1", "%q is no port of this machine's loopback", cut(listener, maxSubject))
	}
	f := &Forward{run: r, port: port, listen: listen}
	if err := r.ports.openPort(f); err != nil {
		return nil, err
	}
	if err := m.opts.Audit.Append(audit.Record{Kind: audit.KindForward, Run: r.id, Agent: r.plan.Agent, Subject: f.subject(), Reason: "began"}); err != nil {
		r.ports.closePort(f)
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "the forward is not in the audit log, so it was not opened")
	}
	r.log.add("handlerd", "you opened "+f.subject()+" on the host")
	return f, nil
}

// Listeners gives where the persons' programs listen for what is forwarded, and Options.Listeners: egress.Options.OwnListeners.
func (m *Manager) Listeners() []netip.AddrPort {
	m.mu.Lock()
	runs := slices.Collect(maps.Values(m.runs))
	m.mu.Unlock()
	var all []netip.AddrPort
	if m.opts.Listeners != nil {
		all = m.opts.Listeners()
	}
	for _, r := range runs {
		r.ports.mu.Lock()
		for _, f := range r.ports.open {
			all = append(all, f.listen)
		}
		r.ports.mu.Unlock()
	}
	return all
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return fault.New(fault.Usage, "a port is 1 to 65535", "there is no port %d", port)
	}
	return nil
}

func (f *Forward) subject() string { return fmt.Sprintf("port %d", f.port) }

// openPort enters a forward.
func (p *ports) openPort(f *Forward) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return fault.New(fault.Failed, "see: handler ps", "the run %s is ending", f.run.id)
	case p.open[f.port] != nil:
		return fault.New(fault.Failed, "use its address, or end it there first", "port %d of run %s is forwarded already", f.port, f.run.id)
	case len(p.open) >= MaxForwards:
		return fault.New(fault.Failed, "end one of them first", "%d ports of run %s are forwarded, the most there can be", len(p.open), f.run.id)
	}
	if p.open == nil {
		p.open = map[int]*Forward{}
	}
	p.open[f.port] = f
	p.wg.Add(1)
	return nil
}

func (p *ports) closePort(f *Forward) {
	p.mu.Lock()
	delete(p.open, f.port)
	p.mu.Unlock()
	p.wg.Done()
}

// Run gives the id of the run and its agent.
func (f *Forward) Run() (id, agent string) { return f.run.id, f.run.plan.Agent }

// Dial connects to the port, for whoever opened it. The connection ends with the run. Errors are *fault.Fault.
func (f *Forward) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := f.run.dial(ctx, f.port)
	if err != nil {
		return nil, err // and no typed nil
	}
	f.used.Add(1)
	return conn, nil
}

// Serve keeps the port open until client, which says nothing, is closed or the run ends. It closes client.
func (f *Forward) Serve(ctx context.Context, client net.Conn) error {
	defer context.AfterFunc(ctx, func() { client.Close() })()
	defer context.AfterFunc(f.run.ctx, func() { client.Close() })()
	n, _ := client.Read(make([]byte, 1)) // its end is what is waited for
	client.Close()
	f.end()
	if n > 0 {
		return fault.New(fault.Usage, "", "the client of a forward spoke out of order")
	}
	return nil
}

// Abort closes the port without a client.
func (f *Forward) Abort() { f.end() }

func (f *Forward) end() {
	how := fmt.Sprintf("ended after %d connections", f.used.Load())
	f.run.audit(audit.Record{Kind: audit.KindForward, Subject: f.subject(), Reason: how})
	f.run.log.add("handlerd", "what you opened, "+f.subject()+", "+how)
	f.run.ports.closePort(f)
}

// A Dialed is a connection to a forwarded port whose client has yet to come. Exactly one of Serve and Abort is called.
type Dialed struct{ conn *portConn }

// Dial connects to a port of the run whose id begins with id, which a Forward must have open. Errors are *fault.Fault.
func (m *Manager) Dial(ctx context.Context, id string, port int) (*Dialed, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if err := checkPort(port); err != nil {
		return nil, err
	}
	r.ports.mu.Lock()
	f := r.ports.open[port]
	r.ports.mu.Unlock()
	if f == nil {
		return nil, fault.New(fault.Refused, fmt.Sprintf("handler forward %s %d", r.id, port), "port %d of run %s is not forwarded", port, r.id)
	}
	conn, err := r.dial(ctx, port)
	if err != nil {
		return nil, err
	}
	f.used.Add(1)
	return &Dialed{conn}, nil
}

// Serve joins client to the port until both directions have ended, either end is gone, or the run ends. It closes both.
func (d *Dialed) Serve(ctx context.Context, client net.Conn) error {
	defer context.AfterFunc(ctx, func() { d.conn.Close() })()
	c, ok := client.(duplex.Conn)
	if !ok {
		d.conn.Close()
		client.Close()
		return fmt.Errorf("a %T cannot end one direction alone", client)
	}
	duplex.Join(c, d.conn)
	return nil
}

// Abort ends the connection without a client.
func (d *Dialed) Abort() { d.conn.Close() }
