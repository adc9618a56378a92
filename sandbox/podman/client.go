package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// A connection is one to the service. The bindings keep theirs in a context; nothing of this package attaches to a
// container, so it is never taken over as a stream (pitfalls P03) and may be shared.
type connection struct {
	held    context.Context // holds the bindings' connection, never ends
	version string          // of podman, which is also its API's
	gone    atomic.Bool     // it failed once: dial again
}

// callContext lets a caller's context end a call that finds its connection in another.
type callContext struct {
	context.Context
	conn context.Context
}

func (c callContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.conn.Value(key)
}

// ready gives the machine and a context for calls of the bindings, starting the service first if it must.
func (d *Driver) ready(ctx context.Context) (context.Context, *machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, d.engineError("connect", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, setupError(ErrClosed, "")
	}
	if d.machine == nil {
		m, err := findMachine(ctx, d.opts)
		if err != nil {
			return nil, nil, err
		}
		d.machine = m
	}
	socket := d.opts.Socket
	if d.service != nil {
		socket = d.layout().socket()
		started, err := d.service.ensure(ctx, d.machine)
		if err != nil {
			return nil, nil, err
		}
		if started {
			d.drop()
			d.halfDone = true
		}
	}
	if d.conn == nil || d.conn.gone.Load() {
		d.drop()
		err := d.dial(ctx, socket)
		if errors.Is(err, ErrSocket) && d.service != nil && ctx.Err() == nil {
			// Its socket went away under it: the runtime folder was removed at a logout (pitfalls S05).
			d.service.restart()
			if _, err = d.service.ensure(ctx, d.machine); err == nil {
				d.halfDone = true
				err = d.dial(ctx, socket)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if d.halfDone {
		d.halfDone = false
		d.sweepHalfDone(callContext{ctx, d.conn.held})
	}
	return callContext{ctx, d.conn.held}, d.machine, nil
}

// dial connects and checks the version (pitfalls P08). d.mu is held.
func (d *Driver) dial(ctx context.Context, socket string) error {
	held, err := bindings.NewConnection(context.WithoutCancel(ctx), (&url.URL{Scheme: "unix", Path: socket}).String())
	if err != nil {
		return socketError(socket, err)
	}
	dropIdle(held)
	conn := &connection{held: held, version: bindings.ServiceVersion(held).String()}
	if !atLeast(conn.version, 4, 3) {
		return setupError(fmt.Errorf("%w: the service is %s", ErrPodmanOld, conn.version), installHint("podman"))
	}
	if d.service == nil {
		// The service is the person's: the files that sandboxes mount are ours all the same, and what the kernel
		// keeps is for that service to say.
		if err := prepare(d.opts, d.layout(), d.machine); err != nil {
			return err
		}
		info, err := infoOf(callContext{ctx, held})
		if err != nil {
			return d.engineError("info", err)
		}
		if !info.Host.Security.Rootless {
			return setupError(fmt.Errorf("%w: the service at %s is root's", ErrRoot, socket), "unset engine.socket, and Handler runs its own")
		}
		d.machine.systemd = info.Host.CgroupManager == "systemd"
		d.machine.setEnforced(enforcing(info), kernelRelease())
	}
	d.machine.capTo(socket)
	d.conn = conn
	return nil
}

// idleTime is how long a connection to the service is kept for the next call.
const idleTime = 20 * time.Second

// dropIdle has idle connections close by themselves: a call that is under way when its connection is given up for a new
// one would leave one behind for good.
func dropIdle(held context.Context) {
	c, err := bindings.GetClient(held)
	if err != nil {
		return
	}
	if t, ok := c.Client.Transport.(*http.Transport); ok {
		c.Client.CloseIdleConnections() // what has served already knows of no time
		t.IdleConnTimeout = idleTime
	}
}

// capTo lowers the limits that sandboxes may have to those of the service that makes them: podman lowers its own
// limit of processes when it starts, and a limit above one's own cannot be given. What cannot be found out is left.
func (m *machine) capTo(socket string) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || peer.Pid <= 1 {
			return
		}
		for resource, hard := range map[int]*uint64{unix.RLIMIT_NOFILE: &m.noFile, unix.RLIMIT_NPROC: &m.noProc} {
			var r unix.Rlimit
			if err := unix.Prlimit(int(peer.Pid), resource, nil, &r); err == nil {
				*hard = min(*hard, r.Max)
			}
		}
	})
}

// drop forgets the connection. d.mu is held.
func (d *Driver) drop() {
	if d.conn == nil {
		return
	}
	if c, err := bindings.GetClient(d.conn.held); err == nil {
		c.Client.CloseIdleConnections()
	}
	d.conn = nil
}

// failed notes that a call did not reach the service, so that the next one connects anew. It returns err.
func (d *Driver) failed(err error) error {
	if err != nil && isUnreachable(err) {
		d.mu.Lock()
		if d.conn != nil {
			d.conn.gone.Store(true)
		}
		d.mu.Unlock()
	}
	return err
}

func (d *Driver) layout() layout { return layout{state: d.opts.StateDir, run: d.opts.RunDir} }

// maxAnswer bounds what is read of one answer of the service.
const maxAnswer = 16 << 20

// get asks the service for JSON of which only a few fields are wanted: the types of the bindings are those of their
// own version, and an older service spells some fields otherwise (pitfalls P08).
func get(ctx context.Context, into any, params url.Values, path string, parts ...string) error {
	conn, err := bindings.GetClient(ctx)
	if err != nil {
		return err
	}
	response, err := conn.DoRequest(ctx, nil, http.MethodGet, path, params, nil, parts...)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if !response.IsSuccess() {
		return response.Process(nil)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(into)
}

// A container is what inspecting one says.
type container struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status    string
		Running   bool
		OOMKilled bool
		Pid       int
		ConmonPid int
		ExitCode  int
	}
	Config struct{ Labels map[string]string }

	half bool // see isHalfGone; the rest is not known then
}

// ended says that the first process ran and is not there any more.
func (c container) ended() bool {
	return c.State.Status == "exited" || c.State.Status == "stopped"
}

// inspect asks about a container. Podman looks at its process meanwhile, and fails when that ends in this moment, or
// when another call removes what it looks at; asked again it knows.
func inspect(ctx context.Context, id string) (container, error) {
	var c container
	var err error
	for range 10 {
		c = container{}
		err = get(ctx, &c, nil, "/containers/%s/json", id)
		if err == nil || statusCode(err) != http.StatusInternalServerError {
			return c, err
		}
		if perr := pause(ctx, 10*time.Millisecond); perr != nil {
			return c, perr
		}
	}
	return c, err
}

// An engineInfo is what we read of podman's info, in the spelling of every version since 4.3.
type engineInfo struct {
	Host struct {
		CgroupManager     string   `json:"cgroupManager"`
		CgroupVersion     string   `json:"cgroupVersion"`
		CgroupControllers []string `json:"cgroupControllers"`
		OCIRuntime        struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"ociRuntime"`
		Security struct {
			Rootless bool `json:"rootless"`
		} `json:"security"`
	} `json:"host"`
	Store struct {
		GraphDriverName string            `json:"graphDriverName"`
		GraphStatus     map[string]string `json:"graphStatus"`
	} `json:"store"`
	Version struct{ Version string } `json:"version"`
}

func infoOf(ctx context.Context) (engineInfo, error) {
	var info engineInfo
	err := get(ctx, &info, nil, "/info")
	return info, err
}

// enforcing lists the controllers whose limits have an effect.
func enforcing(info engineInfo) []string {
	if info.Host.CgroupVersion != "v2" || info.Host.CgroupManager != "systemd" {
		return nil
	}
	return info.Host.CgroupControllers
}

// Info says what the engine is and which limits the kernel keeps (A.4). It takes half a second. Its errors are
// *sandbox.EngineError.
func (d *Driver) Info(ctx context.Context) (sandbox.Info, error) {
	ctx, m, err := d.ready(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := infoOf(ctx)
	if err != nil {
		return sandbox.Info{}, d.engineError("info", d.failed(err))
	}
	storage := info.Store.GraphDriverName
	if native, ok := info.Store.GraphStatus["Native Overlay Diff"]; ok && storage == "overlay" {
		storage = "overlay (fuse)"
		if native == "true" || info.Store.GraphStatus["Using metacopy"] != "" && info.Store.GraphStatus["mount_program"] == "" {
			storage = "overlay (native)"
		}
	}
	enforced := m.enforced
	enforced.WholeCPUs = !enforced.CPU
	return sandbox.Info{
		Engine:        "podman",
		Version:       info.Version.Version,
		Runtime:       runtimeName(info.Host.OCIRuntime.Name, info.Host.OCIRuntime.Version),
		CgroupVersion: m.cgroup,
		Storage:       storage,
		Rootless:      info.Host.Security.Rootless,
		Enforced:      enforced,
	}, nil
}

// runtimeName makes "runc 1.1.5" of "runc" and "runc version 1.1.5+ds1\ncommit: …".
func runtimeName(name, version string) string {
	line, _, _ := strings.Cut(version, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return name
	}
	number, _, _ := strings.Cut(fields[len(fields)-1], "+")
	return name + " " + number
}
