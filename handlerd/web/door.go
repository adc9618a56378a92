package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

// Host is the name of the page's origin. Browsers take every name under localhost to the loopback by themselves.
const Host = "handler.localhost"

// DefaultPort is where the door is when nobody says otherwise. Where it is taken, one of the next PortTries is.
const (
	DefaultPort = 7766
	PortTries   = 16
)

// Options are what a Door is made of. All are needed but Busy and Logger.
type Options struct {
	// State is the file of who is logged in; Opened is the file that says on which port the person had the door opened,
	// and lies where a reboot clears it: a daemon that is started anew opens it again.
	State, Opened string
	// Port of handler.toml; 0 for none said. Enabled opens the door with the daemon.
	Port    int
	Enabled bool
	Audit   func(audit.Record) error
	// OpenPort opens a port of a run to its person, who listens for it on listener.
	OpenPort func(ctx context.Context, run string, port int, listener string) (Port, error)
	// Busy keeps the daemon while the door is open, until what it gives is called.
	Busy func() (done func())
	// Version, User and Home are what the page is told.
	Version, User, Home string
	UID                 int // whose connections are taken
	Logger              *slog.Logger
}

// A Door is the page's listener and who may come in. Its methods may be called concurrently.
type Door struct {
	o      Options
	log    *slog.Logger
	logins *logins
	pages  *assets
	api    http.Handler // set once, before the door is opened

	mu      sync.Mutex
	open    *opened // nil while the door is closed; protected by mu
	problem string  // why a door that is wanted is closed; protected by mu
	closed  bool    // protected by mu

	forwards *forwards
}

// opened is the door while it is open.
type opened struct {
	port      int
	listeners []net.Listener
	server    *http.Server
	cancel    context.CancelFunc // ends every request
	done      func()             // the daemon may end
	wg        sync.WaitGroup
}

// New makes a door that is closed. Close ends it.
func New(o Options) (*Door, error) {
	d := &Door{o: o, log: o.Logger, forwards: newForwards()}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if d.pages, err = newAssets(pageFiles, "assets"); err != nil {
		return nil, err
	}
	d.logins, err = openLogins(o.State, time.Now)
	if err != nil {
		d.log.Warn("who was logged in to the page could not be read, so everybody logs in again", "error", err)
	}
	return d, nil
}

// Start gives the door the API's handler, once, and opens it where handler.toml says so, or where the person had it
// open before the daemon ended. What goes wrong with that is in Status, and no reason for the daemon not to start.
func (d *Door) Start(api http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.api = api
	port, was := d.wasOpen()
	if !was && !d.o.Enabled {
		return
	}
	if !was {
		port = d.o.Port
	}
	if _, err := d.unlock(port); err != nil {
		d.problem = fault.Of(err).Text
		d.log.Error("the page's door was not opened", "error", err)
	}
}

// wasOpen reads on which port the person had the door open.
func (d *Door) wasOpen() (port int, was bool) {
	text, err := os.ReadFile(d.o.Opened)
	if err != nil {
		return 0, false
	}
	port, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return port, err == nil && checkPort(port) == nil
}

func checkPort(port int) error {
	if port < 1024 || port > 65535 {
		return fault.New(fault.Usage, "leave it out for "+strconv.Itoa(DefaultPort), "the page's port is 1024 to 65535, not %d", port)
	}
	return nil
}

// Link opens the door where it is closed, on port or by Options.Port, and gives a link that is good once. Errors are
// *fault.Fault.
func (d *Door) Link(port int) (types.WebLink, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return types.WebLink{}, fault.New(fault.Failed, "try again", "handlerd is ending")
	}
	if port != 0 {
		if err := checkPort(port); err != nil {
			return types.WebLink{}, err
		}
	}
	if port == 0 {
		if before, was := d.wasOpen(); was && d.open == nil {
			port = before
		}
	}
	if d.open != nil && port != 0 && d.open.port != port {
		return types.WebLink{}, fault.New(fault.Failed, fmt.Sprintf("handler web --off && handler web --port %d", port),
			"the page is open on port %d already", d.open.port)
	}
	var notice string
	if d.open == nil {
		var err error
		if notice, err = d.unlock(port); err != nil {
			return types.WebLink{}, err
		}
	}
	if err := os.WriteFile(d.o.Opened, []byte(strconv.Itoa(d.open.port)+"\n"), 0o600); err != nil {
		d.log.Warn("where the page is open was not written down: a restart of handlerd closes it", "error", err)
	}
	text, expires := d.logins.newLink()
	return types.WebLink{URL: d.open.origin() + loginPath + "#" + text, Expires: expires, Port: d.open.port, Notice: notice}, nil
}

func (o *opened) host() string   { return Host + ":" + strconv.Itoa(o.port) }
func (o *opened) origin() string { return "http://" + o.host() }

// unlock listens on port; 0 stands for Options.Port, and if that is 0 too for DefaultPort or one of the next. mu is held
// and the door is closed.
func (d *Door) unlock(port int) (notice string, err error) {
	if port == 0 {
		port = d.o.Port
	}
	if d.api == nil {
		return "", fault.New(fault.Failed, "try again", "handlerd is not ready")
	}
	listeners, err := listen(port)
	if err != nil {
		return "", listenFault(port, err)
	}
	got := listeners[0].Addr().(*net.TCPAddr).Port
	if port == 0 && got != DefaultPort {
		notice = fmt.Sprintf("port %d is taken, so this is port %d; to see who has it: ss -ltnp 'sport = :%d'", DefaultPort, got, DefaultPort)
	}
	rec := audit.Record{Kind: audit.KindWeb, Subject: "port " + strconv.Itoa(got), Reason: "the page's door was opened"}
	if err := d.o.Audit(rec); err != nil {
		closeAll(listeners)
		return "", fault.Wrap(fault.Failed, err, "handler doctor", "the page's door is not in the audit log, so it was not opened")
	}
	d.serve(got, listeners)
	return notice, nil
}

func listenFault(port int, err error) error {
	switch {
	case !errors.Is(err, syscall.EADDRINUSE):
		return fault.Wrap(fault.Failed, err, "handler doctor", "the page's door cannot listen on this machine")
	case port == 0:
		return fault.Wrap(fault.Failed, err, "take another: handler web --port PORT", "ports %d to %d of this machine are taken", DefaultPort, DefaultPort+PortTries-1)
	}
	return fault.Wrap(fault.Failed, err, fmt.Sprintf("see who has it: ss -ltnp 'sport = :%d', or take another: handler web --port %d", port, min(port+1, 65535)),
		"port %d of this machine is taken", port)
}

// listen takes a port on both loopback addresses, or on 127.0.0.1 alone where the machine has no other: a browser may try
// ::1 first, and must not find another user's program there. Port 0 stands for DefaultPort or the next that is free.
func listen(port int) ([]net.Listener, error) {
	if port != 0 {
		return listenBoth(port)
	}
	var first error
	for n := range PortTries {
		ls, err := listenBoth(DefaultPort + n)
		if err == nil {
			return ls, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func listenBoth(port int) ([]net.Listener, error) {
	var all []net.Listener
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(port))))
		if err != nil {
			if ip.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				continue
			}
			closeAll(all)
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// serve answers on the listeners until lock. mu is held.
func (d *Door) serve(port int, listeners []net.Listener) {
	ctx, cancel := context.WithCancel(context.Background()) // nobody's request: lock ends it
	o := &opened{port: port, listeners: listeners, cancel: cancel, done: func() {}}
	if d.o.Busy != nil {
		o.done = d.o.Busy()
	}
	o.server = &http.Server{
		Handler:           d.handler(o),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: HeaderTime,
		IdleTimeout:       IdleTime,
		MaxHeaderBytes:    HeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		// OPTIONS * is refused like every OPTIONS.
		DisableGeneralOptionsHandler: true,
	}
	slots := make(chan struct{}, MaxConnections)
	for _, l := range listeners {
		own := &ownListener{Listener: l, uid: d.o.UID, slots: slots, closed: ctx.Done(), log: d.log}
		o.wg.Go(func() {
			if err := o.server.Serve(own); err != nil && !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
				d.log.Error("the page's door does not listen any more", "error", err)
			}
		})
	}
	d.open, d.problem = o, ""
	d.log.Info("the page's door is open", "port", port)
}

// Off closes the door and ends what goes through it; links are good no more. Who is logged in stays so. Closing a closed
// door is no error.
func (d *Door) Off() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := os.Remove(d.o.Opened)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if d.open != nil {
		port := d.open.port
		d.lock()
		rec := audit.Record{Kind: audit.KindWeb, Subject: "port " + strconv.Itoa(port), Reason: "the page's door was closed"}
		err = errors.Join(err, d.o.Audit(rec))
	}
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the page's door is closed, but that was not written down")
	}
	return nil
}

// lock closes the open door; mu is held.
func (d *Door) lock() {
	o := d.open
	d.open = nil
	d.logins.drop()
	d.forwards.endAll()
	o.cancel()
	closeAll(o.listeners)
	_ = o.server.Close()
	o.wg.Wait()
	o.done()
}

// Close closes the door for good, and it is open again when the next daemon starts.
func (d *Door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.open != nil {
		d.lock()
	}
	return nil
}

// Status says whether the door is open, and who is logged in.
func (d *Door) Status() types.WebStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := types.WebStatus{Logins: d.logins.list(), Forwards: d.Forwards(""), Problem: d.problem}
	if d.open != nil {
		s.On, s.Port, s.URL = true, d.open.port, d.open.origin()+"/"
	}
	return s
}

// Logout logs browsers out: one by its login's id or the beginning of it, or types.AllLogins. Errors are *fault.Fault.
func (d *Door) Logout(id string) error {
	gone, err := d.logins.forget(id)
	for _, g := range gone {
		d.record("logged out", g, "")
	}
	return err
}

// record writes down that a browser came or went. It has happened either way.
func (d *Door) record(what, id, browser string) {
	if browser != "" {
		what += ": " + browser
	}
	if err := d.o.Audit(audit.Record{Kind: audit.KindWeb, Subject: "login " + id, Reason: what}); err != nil {
		d.log.Error("audit line not written", "kind", audit.KindWeb, "error", err)
	}
}

// Listeners are the door's own addresses, which no sandbox reaches (D.4).
func (d *Door) Listeners() []netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return nil
	}
	var all []netip.AddrPort
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		all = append(all, netip.AddrPortFrom(ip, uint16(d.open.port)))
	}
	return all
}
