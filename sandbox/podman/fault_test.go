package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

// A fault is what happens to one request to podman's service. It returns whether the answer gets through.
type fault func(f *faults, forward func()) (answered bool)

// faults stands between a driver and its service, and does a fault to the n-th request that changes or asks something.
// It takes the place of the service's socket, which is renamed: a service that is started anew is not behind it.
type faults struct {
	rig   *rig
	real  string
	http  http.Server
	abort context.CancelFunc // ends the driver's call

	mu    sync.Mutex
	at    int // counts down to 0
	what  fault
	asked []string

	killed bool // by a fault, of which there is one at a time
}

// interpose puts faults in front of the service that runs.
func interpose(t *testing.T, r *rig) *faults {
	t.Helper()
	if _, _, err := r.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	socket := r.layout().socket()
	f := &faults{rig: r, real: socket + ".real"}
	_ = os.Remove(f.real)
	if err := os.Rename(socket, f.real); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // a new service's socket may lie there by then
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.real)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "podman"})
	proxy.Transport, proxy.ErrorHandler = transport, func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	f.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { f.serve(proxy, w, req) })
	served := make(chan struct{})
	go func() { defer close(served); _ = f.http.Serve(l) }()
	t.Cleanup(func() { f.http.Close(); <-served })
	r.mu.Lock()
	r.drop()
	r.mu.Unlock()
	if _, _, err := r.ready(t.Context()); err != nil { // through what stands in front
		t.Fatal(err)
	}
	return f
}

func (f *faults) serve(proxy http.Handler, w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	what := f.what
	if what != nil && !strings.HasSuffix(req.URL.Path, "/_ping") {
		f.asked = append(f.asked, req.Method+" "+req.URL.Path)
		if f.at--; f.at != 0 {
			what = nil
		}
	} else {
		what = nil
	}
	f.mu.Unlock()
	if what == nil {
		proxy.ServeHTTP(w, req)
		return
	}
	rec := &recorder{header: http.Header{}}
	if !what(f, func() { proxy.ServeHTTP(rec, req.WithContext(context.WithoutCancel(req.Context()))) }) {
		panic(http.ErrAbortHandler) // the connection is cut
	}
	if rec.status == 0 { // it was never asked
		rec.status = http.StatusInternalServerError
		rec.body.WriteString(`{"cause":"broken","message":"broken on purpose","response":500}`)
	}
	for k, v := range rec.header {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.status)
	_, _ = io.WriteString(w, rec.body.String())
}

// A recorder keeps an answer. That the service ends while it gives one is no error of the test's.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }
func (r *recorder) Write(p []byte) (int, error) {
	r.status = max(r.status, http.StatusOK)
	return r.body.Write(p)
}

// forwarded is forward where the service may end meanwhile.
func forwarded(forward func()) {
	defer func() {
		if r := recover(); r != nil && r != http.ErrAbortHandler {
			panic(r)
		}
	}()
	forward()
}

// killService ends podman's service as nobody could expect, and returns when it is gone.
func (f *faults) killService() {
	f.rig.service.mu.Lock()
	c := f.rig.service.child
	f.rig.service.mu.Unlock()
	f.killed = true
	if c == nil {
		return
	}
	_ = c.process.Kill()
	<-c.done
}

// killWhile forwards and kills the service a while later, in the middle of the work.
func killWhile(after time.Duration) fault {
	return func(f *faults, forward func()) bool {
		done := make(chan struct{})
		go func() { defer close(done); forwarded(forward) }()
		select {
		case <-time.After(after): // a moment in the middle cannot be waited for otherwise: any will do
		case <-done:
		}
		f.killService()
		<-done
		return false
	}
}

var allFaults = map[string]fault{
	"refused":         func(*faults, func()) bool { return true },
	"answer lost":     func(f *faults, forward func()) bool { forwarded(forward); return false },
	"request lost":    func(*faults, func()) bool { return false },
	"given up before": func(f *faults, forward func()) bool { f.abort(); forwarded(forward); return true },
	"given up after":  func(f *faults, forward func()) bool { forwarded(forward); f.abort(); return true },
	"killed before":   func(f *faults, forward func()) bool { f.killService(); return false },
	"killed at once":  killWhile(0),
	"killed in 20 ms": killWhile(20 * time.Millisecond),
	"killed in 60 ms": killWhile(60 * time.Millisecond),
}

// TestStartRollsBack does every fault to the first, second, … request of a start, until none is left to do it to.
// Where the start fails nothing is left; where it succeeds all the same its sandbox can be removed. The next start
// works.
func TestStartRollsBack(t *testing.T) {
	r := newRig(t)
	guest, err := sandboxtest.BuildGuest(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, what := range allFaults {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				f := interpose(t, r)
				s := r.spec("sleep=1m")
				s.Name, s.Guest = fmt.Sprintf("f%d", n), guest
				s.Files = []sandbox.File{{Path: sandbox.SecretsTarget + "/x", Mode: 0o400, Content: []byte("x")}}
				s.Volumes = []sandbox.Volume{{Source: filepath.Join(r.dir, "vol", s.Name), Target: sandbox.HomeTarget + "/v"}}
				before := r.traces(t)
				ctx, cancel := context.WithCancel(t.Context())
				f.mu.Lock()
				f.at, f.what, f.abort = n, what, cancel
				f.mu.Unlock()
				began := time.Now()
				id, err := r.Start(ctx, s)
				cancel()
				f.mu.Lock()
				left, asked := f.at, f.asked
				f.what = nil
				f.mu.Unlock()
				t.Logf("at request %d of %q: %v after %v", n, asked, err, time.Since(began).Round(time.Millisecond))
				if err == nil {
					err = r.Remove(t.Context(), id)
				} else {
					err = nil
					if id != "" {
						t.Errorf("a failed start gives %q", id)
					}
				}
				if err != nil {
					t.Errorf("remove: %v", err)
				}
				if err := os.RemoveAll(filepath.Join(r.dir, "vol")); err != nil {
					t.Error(err)
				}
				r.wantTraces(t, before)
				f.end(t)
				if left > 0 {
					if n < 4 {
						t.Errorf("the start made fewer requests than it must: %q", asked)
					}
					return
				}
				if n > 40 {
					t.Fatal("a start makes requests without end")
				}
			}
		})
	}
	if got := r.run(t, r.spec("true"))["true"]; got != "yes" {
		t.Errorf("a sandbox after it: %q", got)
	}
}

// end gives the driver its service without anything in front: the one that was there, or the one started since.
func (f *faults) end(t *testing.T) {
	t.Helper()
	f.http.Close()
	r := f.rig
	if !f.killed {
		if err := os.Rename(f.real, r.layout().socket()); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	r.drop()
	r.mu.Unlock()
	if _, err := r.List(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// traces are what podman and the kernel hold of sandboxes: records, folders, processes, mounts.
func (r *rig) traces(t *testing.T) []string {
	t.Helper()
	left, err := r.leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"runc", "crun"} {
		entries, _ := os.ReadDir(filepath.Join(r.layout().xdg(), dir)) // the runtime that is not used has none
		for _, e := range entries {
			left = append(left, dir+" knows "+e.Name())
		}
	}
	for _, pattern := range []string{"storage/overlay-containers/*", "storage/overlay/*/merged/*"} {
		found, _ := filepath.Glob(filepath.Join(r.layout().state, pattern))
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				left = append(left, path)
			}
		}
	}
	all, err := ours(r.layout().xdg())
	if err != nil {
		t.Fatal(err)
	}
	procs, err := proctree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if isService(p) || len(p.args) > 0 && strings.Contains(p.args[0], "catatonit") {
			continue
		}
		left = append(left, fmt.Sprintf("process %d %.200q", p.PID, p.args))
		for _, below := range proctree.Below(procs, p.PID) {
			left = append(left, fmt.Sprintf("process %d below it", below.PID))
		}
	}
	for _, p := range procs { // whoever lost its monitor
		if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)); err == nil &&
			(strings.HasPrefix(string(cmdline), guestPath+"\x00") || strings.HasPrefix(string(cmdline), "/probe\x00")) && ownedByUs(p.PID) {
			left = append(left, fmt.Sprintf("process %d %.100q", p.PID, cmdline))
		}
	}
	return left
}

func ownedByUs(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	var st unix.Stat_t
	return err == nil && info.IsDir() && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && int(st.Uid) == os.Getuid()
}

// wantTraces waits until there is no more than before: a process that was killed ends a moment later.
func (r *rig) wantTraces(t *testing.T, before []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		now := r.traces(t)
		if len(now) <= len(before) {
			return
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("left:\n%s\nbefore:\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
		}
	}
}

// TestEndThroughFaults does every fault to every request of Stop, Stats and Remove: what is asked is done all the same.
func TestEndThroughFaults(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"answer lost", "killed at once", "killed in 20 ms", "killed in 60 ms"} {
		t.Run(name, func(t *testing.T) {
			before := r.traces(t)
			for n, left := 1, 0; left == 0; n++ {
				s := r.spec("sleep=1m")
				s.Name = fmt.Sprintf("e%d", n)
				id, err := r.Start(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				f := interpose(t, r)
				f.mu.Lock()
				f.at, f.what = n, allFaults[name]
				f.mu.Unlock()
				stats, serr := r.Stats(t.Context(), id)
				err = errors.Join(serr, r.Stop(t.Context(), id, 50*time.Millisecond), r.Remove(t.Context(), id))
				f.mu.Lock()
				left = max(f.at, 0)
				asked := f.asked
				f.what = nil
				f.mu.Unlock()
				if err != nil || stats.Processes == 0 {
					t.Errorf("at request %d of %q: %+v %v", n, asked, stats, err)
				}
				r.wantTraces(t, before)
				f.end(t)
			}
		})
	}
}

// A container whose storage is gone, since podman's service ended in the middle of a removal, cannot be inspected and is
// removed all the same. One of which podman says that it was removed, and that is still there, is asked for again.
func TestRemoveHalfGone(t *testing.T) {
	id := strings.Repeat("a", 64)
	for name, said := range map[string]string{
		"half gone": `{"message":"getting container from store \"a\": container not known","response":500}`,
		"stays":     `{"Id":"` + id + `","State":{"Status":"exited"},"Config":{"Labels":{"` + sandbox.LabelOwner + `":"o"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			removals := 0
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v5.6.2/libpod/_ping", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Libpod-API-Version", "4.3.1")
			})
			mux.HandleFunc("GET /v5.6.2/libpod/containers/{id}/json", func(w http.ResponseWriter, _ *http.Request) {
				switch {
				case removals > 1:
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"message":"no such container","response":404}`)
				case strings.Contains(said, "500"):
					w.WriteHeader(http.StatusInternalServerError)
					fallthrough
				default:
					_, _ = io.WriteString(w, said)
				}
			})
			mux.HandleFunc("DELETE /v5.6.2/libpod/containers/{id}", func(w http.ResponseWriter, _ *http.Request) {
				removals++
				_, _ = io.WriteString(w, `[{"Id":"`+id+`"}]`)
			})
			d, _ := fakeService(t, mux)
			if err := d.Remove(t.Context(), id); err != nil || removals != 2 {
				t.Errorf("%d removals, %v", removals, err)
			}
		})
	}
}
