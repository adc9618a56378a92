package sandboxtest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
	"github.com/handlerd/handler/sandbox/rundir"
	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

// A Target is what Run tests. Driver and Images are required.
type Target struct {
	Driver sandbox.Driver
	Images sandbox.Images

	// Guest and Probe are host paths of the two programs; "" builds them (BuildGuest, BuildProbe).
	Guest, Probe string
	// Strict says that the driver isolates; the tests of A.3 run then, and every test of something read-only.
	Strict bool
	// Slack is how much longer than its grace Stop may take; 0 for half a second.
	Slack time.Duration
	// Patience is how long anything else may take; 0 for a minute.
	Patience time.Duration
	// Inspect, if not nil, returns all that the engine itself shows of a sandbox (inspect, logs, argv): no secret
	// may be in it.
	Inspect func(ctx context.Context, id string) (string, error)
	// Leftovers, if not nil, names what the engine still has of sandboxes: containers, mounts, volumes, networks,
	// folders. It is asked when there should be nothing.
	Leftovers func(ctx context.Context) ([]string, error)
}

// ownerLabel marks all that one Run makes.
const ownerLabel = "io.handlerd.test"

// Run tests one driver. It asks for one Target and uses it for all subtests; newTarget may register cleanups.
func Run(t *testing.T, newTarget func(t *testing.T) Target) {
	s := &suite{Target: newTarget(t), owner: strings.ToLower(rand.Text())}
	if s.Slack == 0 {
		s.Slack = 500 * time.Millisecond
	}
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	s.build(t)
	for _, c := range s.contracts() {
		t.Run(c.name, func(t *testing.T) {
			c.test(t)
			s.nothingLeft(t)
		})
	}
	if s.Strict {
		t.Run("Strict", func(t *testing.T) {
			for _, c := range s.strictContracts() {
				t.Run(c.name, func(t *testing.T) {
					c.test(t)
					s.nothingLeft(t)
				})
			}
		})
	}
}

type contract struct {
	name string
	test func(t *testing.T)
}

type suite struct {
	Target
	owner string // value of ownerLabel
	image string // of the probe
	count int    // of names
}

// probePath is where the suite's image has the probe.
const probePath = "/opt/probe"

// build makes the programs and the image.
func (s *suite) build(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var err error
	if s.Guest == "" {
		if s.Guest, err = BuildGuest(dir); err != nil {
			t.Fatal(err)
		}
	}
	if s.Probe == "" {
		if s.Probe, err = BuildProbe(dir); err != nil {
			t.Fatal(err)
		}
	}
	probe, err := os.ReadFile(s.Probe)
	if err != nil {
		t.Fatal(err)
	}
	s.image = s.importImage(t, "localhost/handler-test/"+s.owner+":probe", rootfs(t, map[string][]byte{probePath: probe}))
}

// importImage imports a root file system, and removes the image after the test.
func (s *suite) importImage(t *testing.T, tag string, tar []byte) string {
	t.Helper()
	ctx, cancel := s.ctx(t)
	defer cancel()
	id, err := s.Images.Import(ctx, bytes.NewReader(tar), tag, map[string]string{ownerLabel: s.owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		if err := s.Images.Remove(ctx, id); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	return id
}

// rootfs returns a tar of a root with the usual empty folders and these executable files.
func rootfs(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h *tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"dev", "etc", "home", "home/agent", "opt", "opt/handler", "opt/handler/addons", "opt/handler/guest",
		"opt/handler/harness", "proc", "run", "run/handler", "run/handler-display", "run/handler-secrets", "run/handler-user",
		"sys", "tmp", "usr", "var"} {
		add(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}, nil)
	}
	for name, content := range files {
		add(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: 0o755}, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (s *suite) ctx(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), s.Patience)
}

// nothingLeft holds A.5 after every test: its sandboxes are removed, and nothing of them is anywhere.
func (s *suite) nothingLeft(t *testing.T) {
	t.Helper()
	ctx, cancel := s.ctx(t)
	defer cancel()
	list, err := s.Driver.List(ctx, map[string]string{ownerLabel: s.owner})
	if err != nil {
		t.Error(err)
	}
	for _, b := range list {
		t.Errorf("left: sandbox %s", b.Name)
		if err := s.Driver.Remove(ctx, b.ID); err != nil {
			t.Error(err)
		}
	}
	if pids := marked(t, s.owner); len(pids) > 0 {
		t.Errorf("left: processes %v", pids)
	}
	if s.Leftovers != nil {
		left, err := s.Leftovers(ctx)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the engine: %v %v", left, err)
		}
	}
}

// marked returns the host's live processes with text in their command line.
func marked(t *testing.T, text string) (pids []int) {
	t.Helper()
	procs, err := proctree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if !p.Dead() && p.PID != os.Getpid() && bytes.Contains(b, []byte(text)) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// A run is one sandbox of a test.
type run struct {
	s    *suite
	t    *testing.T
	dir  *rundir.Dir
	in   net.Listener // where the probe reports
	mark string       // in its command lines
	spec sandbox.Spec
	id   string
}

const reportSocket = "probe.sock"

// prepare returns a run that is not started yet, so that the test can change its spec.
func (s *suite) prepare(t *testing.T, command ...string) *run {
	t.Helper()
	parent, err := os.MkdirTemp("", "st") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	s.count++
	r := &run{s: s, t: t, mark: fmt.Sprintf("%s-%d-mark", s.owner, s.count)}
	if r.dir, err = rundir.New(parent, "r", rundir.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.dir.Close() })
	if r.in, err = r.dir.Listen(reportSocket); err != nil {
		t.Fatal(err)
	}
	argv := []string{probePath, "--to", sandbox.RunDirTarget + "/" + reportSocket, "--mark", r.mark}
	r.spec = sandbox.Spec{
		Name:    fmt.Sprintf("st-%s-%d", s.owner[:8], s.count),
		Labels:  map[string]string{ownerLabel: s.owner, sandbox.LabelRun: fmt.Sprint(s.count)},
		Image:   s.image,
		Command: append(argv, command...),
		RunDir:  r.dir.Path(),
		Guest:   s.Guest,
	}
	return r
}

// start starts it; it is removed with the test.
func (r *run) start() *run {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	id, err := r.s.Driver.Start(ctx, r.spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.id = id
	return r
}

// startFails starts what must not start, and holds that nothing is left of it.
func (r *run) startFails() error {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	id, err := r.s.Driver.Start(ctx, r.spec)
	if err == nil {
		r.t.Error("started")
		r.id = id
		r.remove()
		return errors.New("started")
	}
	if id != "" {
		r.t.Errorf("an error and the id %q", id)
	}
	if _, err := os.Lstat(filepath.Join(r.dir.Path(), sandbox.SocketFiles)); !os.IsNotExist(err) {
		r.t.Errorf("left: %s (%v)", sandbox.SocketFiles, err)
	}
	r.s.nothingLeft(r.t)
	return err
}

// result reads one report of the probe into v.
func (r *run) result(v any) net.Conn {
	r.t.Helper()
	timer := time.AfterFunc(r.s.Patience, func() { r.in.Close() })
	defer timer.Stop()
	conn, err := r.in.Accept()
	if err != nil {
		end, _ := r.dir.Stderr()
		r.t.Fatalf("no report of the probe: %v; guest: %+v; stderr: %s", err, r.dir.Result(), end)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(r.s.Patience))
	if err := json.NewDecoder(conn).Decode(v); err != nil {
		end, _ := r.dir.Stderr()
		r.t.Fatalf("report of the probe: %v; stderr: %s", err, end)
	}
	return conn
}

// ready waits for a probe that reports true and lives on.
func (r *run) ready() *run {
	r.t.Helper()
	var up bool
	if r.result(&up); !up {
		r.t.Fatal("the probe is not ready")
	}
	return r
}

func (r *run) wait() sandbox.Exit {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	exit, err := r.s.Driver.Wait(ctx, r.id)
	if err != nil {
		r.t.Fatal(err)
	}
	return exit
}

func (r *run) remove() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.s.Patience)
	defer cancel()
	if err := r.s.Driver.Remove(ctx, r.id); err != nil {
		r.t.Errorf("remove: %v", err)
	}
}

// once starts the probe, reads its one report, waits for exit 0 and removes the sandbox.
func (r *run) once(v any) {
	r.t.Helper()
	r.start()
	defer r.remove()
	r.result(v)
	if exit := r.wait(); !exit.Known || exit.Code != 0 {
		end, _ := r.dir.Stderr()
		r.t.Errorf("exit %+v; stderr: %s", exit, end)
	}
}

// try lets the probe try ops, each NAME=ARG as package main of probe says, and returns how each went.
func (r *run) try(ops ...string) map[string]facts.Outcome {
	r.t.Helper()
	r.spec.Command = append(append(r.spec.Command, "try"), ops...)
	var list []facts.Outcome
	r.once(&list)
	if len(list) != len(ops) {
		r.t.Fatalf("%d outcomes of %d attempts", len(list), len(ops))
	}
	got := make(map[string]facts.Outcome, len(ops))
	for i, op := range ops {
		got[op] = list[i]
	}
	return got
}
