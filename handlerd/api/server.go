// Package api is handlerd's HTTP API (contract K.1): JSON over a unix socket that only its owner may use. It holds
// no behaviour of its own: it reads requests strictly, calls the engine and writes answers.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/history"
)

// MaxRequestBytes bounds the body of a request.
const MaxRequestBytes = 1 << 20

// Runs is what the API needs of the engine's runs (handlerd/sessions).
type Runs interface {
	// Start starts a run and returns when its sandbox stands and its agent is connected.
	Start(ctx context.Context, req types.RunRequest) (Run, error)
	// List gives every live run.
	List(ctx context.Context) []types.Run
	// Count gives how many runs live.
	Count() int
	// Find gives the live run whose id begins with id.
	Find(ctx context.Context, id string) (types.Run, error)
	// Kill ends a run and returns when nothing of it is left.
	Kill(ctx context.Context, id string) error
	// Servers lists the MCP servers that are hosted for a run, and StopServers stops one, or all where name is "".
	Servers(id string) ([]types.Server, error)
	StopServers(id, name string) ([]string, error)
	// Log calls line for each line of a run's log; with follow until the run ends or ctx is done.
	Log(ctx context.Context, id string, follow bool, line func(types.LogLine) error) error
}

// A Run is a started run that waits for its client.
type Run interface {
	ID() string
	// Serve joins client to the agent until either ends, and returns when nothing of the run is left.
	Serve(ctx context.Context, client net.Conn) error
	// Abort ends the run without a client.
	Abort()
}

// Images builds what sandboxes are made of. The daemon's main joins it to the toolbox.
type Images interface {
	List(ctx context.Context) ([]types.Image, error)
	Build(ctx context.Context, req types.BuildRequest, progress func(types.Progress)) (done string, err error)
	Remove(ctx context.Context, req types.BuildRequest) error
}

// Options are what a Server is made of; Logger, Doctor and Secrets may be nil.
type Options struct {
	Runs  Runs
	Rules Rules
	// Approvals are the questions to the person; AuditFile is where the verdicts are read.
	Approvals *approvals.Queue
	AuditFile string
	// Artifacts are those of Principal; nil where none are kept. Scopes goes with them.
	Artifacts *artifacts.Store
	Scopes    Scopes
	Principal string
	// History keeps the sessions; nil where its file cannot be used. Feed tells what changes; nil for no such path.
	History *history.Store
	Feed    *history.Feed
	Images  Images
	Doctor  func(context.Context) []types.Finding
	// Shell starts a command of the person's in a live run and returns when it runs; nil where there are none.
	Shell func(ctx context.Context, id string, req types.ShellRequest) (Attached, error)
	// Forward opens a port of a run to its person for as long as its client is there; Dial connects to such a port. nil
	// where there are none.
	Forward func(ctx context.Context, id string, req types.ForwardRequest) (Attached, error)
	Dial    func(ctx context.Context, id string, req types.PortRequest) (Attached, error)
	// Web is the page's door; nil where there is none.
	Web     Web
	Secrets func(ctx context.Context, agent string) ([]types.SecretCheck, error)
	// Agents shows and changes what there is to run; nil where nothing is known.
	Agents *catalog.Keeper
	// Talk has the sessions whose client is handlerd; nil where there are none.
	Talk Talk
	// Views shows displays; nil where there are none.
	Views   Views
	Stop    func()               // begins the daemon's end; returns at once
	Busy    func() (done func()) // called for every request, a run's life included; may be nil
	Version string
	// StartedBy is what Version says of it.
	StartedBy string
	Logger    *slog.Logger
}

// A Server answers the API.
type Server struct {
	opts    Options
	started time.Time
	log     *slog.Logger
	mux     *http.ServeMux
	http    *http.Server
	cancel  context.CancelFunc // ends the context of every request
	active  atomic.Int64       // requests under way
}

// New makes a server; Serve starts it.
func New(opts Options) *Server {
	s := &Server{opts: opts, started: time.Now(), log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	s.mux = mux
	mux.HandleFunc("GET "+types.PathVersion, s.version)
	mux.HandleFunc("GET "+types.PathRuns, s.listRuns)
	mux.HandleFunc("POST "+types.PathRuns, s.startRun)
	mux.HandleFunc("GET "+types.PathRuns+"/{id}", s.findRun)
	mux.HandleFunc("DELETE "+types.PathRuns+"/{id}", s.killRun)
	mux.HandleFunc("GET "+types.PathRuns+"/{id}/log", s.runLog)
	mux.HandleFunc("GET "+types.PathImages, s.listImages)
	mux.HandleFunc("POST "+types.PathBuild, s.build)
	mux.HandleFunc("POST "+types.PathRemove, s.remove)
	mux.HandleFunc("GET "+types.PathDoctor, s.doctor)
	mux.HandleFunc("POST "+types.PathSecrets, s.checkSecrets)
	mux.HandleFunc("GET "+types.PathRuns+"/{id}/servers", s.listServers)
	mux.HandleFunc("POST "+types.PathRuns+"/{id}/servers/stop", s.stopServers)
	mux.HandleFunc("POST "+types.PathStop, s.stop)
	s.routeApprovals(mux)
	s.routeAttached(mux)
	s.routeArtifacts(mux)
	s.routeTalk(mux)
	s.routeWeb(mux)
	s.routeCatalog(mux)
	s.routeOpenAPI(mux)
	s.routeSessions(mux)
	s.routeFeed(mux)
	s.routeView(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, fault.New(fault.NotFound, "", "the API has no %s %s", r.Method, r.URL.Path))
	})
	base, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http = &http.Server{
		BaseContext:       func(net.Listener) context.Context { return base },
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// counted counts every request while it lasts, and tells Busy of it.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		defer s.active.Add(-1)
		if s.opts.Busy != nil {
			defer s.opts.Busy()()
		}
		next.ServeHTTP(w, r)
	})
}

// Serve answers on l, a unix listener, until Close; then it returns nil. Connections of other users, and of
// processes in another user namespace (the sandboxes' agents have our uid), are dropped before a byte is read.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(ownerListener{l, s.log})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close stops answering: what is under way, such as a build, is cancelled and has until ctx is done to end. The
// connections of runs are not the server's.
func (s *Server) Close(ctx context.Context) error {
	s.cancel()
	err := s.http.Shutdown(ctx)
	return errors.Join(err, s.http.Close())
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	s.answer(w, types.Version{
		Version: s.opts.Version, PID: os.Getpid(), Started: s.started, Runs: s.opts.Runs.Count(),
		Busy: int(s.active.Load()) - 1, StartedBy: s.opts.StartedBy,
		Goroutines: runtime.NumGoroutine(), Descriptors: descriptors(),
	})
}

// descriptors counts this process's, without the one that it takes to count them.
func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries) - 1
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request) {
	runs := s.opts.Runs.List(r.Context())
	if runs == nil {
		runs = []types.Run{}
	}
	s.answer(w, runs)
}

func (s *Server) findRun(w http.ResponseWriter, r *http.Request) {
	run, err := s.opts.Runs.Find(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, run)
}

func (s *Server) killRun(w http.ResponseWriter, r *http.Request) {
	if err := s.opts.Runs.Kill(r.Context(), r.PathValue("id")); err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, struct{}{})
}

// startRun starts the sandbox first and upgrades after, so that what goes wrong is an ordinary answer.
func (s *Server) startRun(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), types.UpgradeACP) {
		s.fail(w, fault.New(fault.Usage, "send Connection: Upgrade and Upgrade: "+types.UpgradeACP,
			"a run lives as long as its connection, so it needs an upgrade"))
		return
	}
	var req types.RunRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	if req.Client != "" && req.Client != types.ClientEditor && req.Client != types.ClientCommand {
		s.fail(w, fault.New(fault.Usage, "send "+types.ClientEditor+", "+types.ClientCommand+" or nothing", "a client of a run is not %q", req.Client))
		return
	}
	hijack := http.NewResponseController(w)
	run, err := s.opts.Runs.Start(r.Context(), req)
	if err != nil {
		s.fail(w, err)
		return
	}
	client, err := s.upgrade(w, hijack, types.UpgradeACP, types.HeaderRun+": "+run.ID())
	if err != nil {
		run.Abort()
		return
	}
	// The run outlives the request: its context is the connection, and net/http cancels r's only for requests.
	if err := run.Serve(context.WithoutCancel(r.Context()), client); err != nil {
		s.log.Info("run ended", "run", run.ID(), "error", err)
	}
}

// upgrade takes the connection over and tells the client so, with further header lines. Its error was answered.
func (s *Server) upgrade(w http.ResponseWriter, rc *http.ResponseController, protocol string, headers ...string) (net.Conn, error) {
	conn, buf, err := rc.Hijack()
	if err != nil {
		s.fail(w, err)
		return nil, err
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		conn.Close()
		return nil, err
	}
	if n := buf.Reader.Buffered(); n > 0 {
		// The client sent something behind its request; it is in the server's buffer.
		early, _ := buf.Reader.Peek(n)
		return &earlyConn{Conn: conn, early: append([]byte(nil), early...)}, nil
	}
	return conn, nil
}

func (s *Server) runLog(w http.ResponseWriter, r *http.Request) {
	out := newStream(w)
	err := s.opts.Runs.Log(r.Context(), r.PathValue("id"), r.URL.Query().Get("follow") == "1", func(l types.LogLine) error {
		return out.send(l)
	})
	if err != nil && !out.begun {
		s.fail(w, err)
	}
}

func (s *Server) listImages(w http.ResponseWriter, r *http.Request) {
	images, err := s.opts.Images.List(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, images)
}

func (s *Server) build(w http.ResponseWriter, r *http.Request) {
	var req types.BuildRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	out := newStream(w)
	done, err := s.opts.Images.Build(r.Context(), req, func(p types.Progress) { _ = out.send(p) })
	if err != nil {
		if !out.begun {
			s.fail(w, err)
			return
		}
		e, _ := types.FromError(err)
		_ = out.send(types.Progress{Error: e})
		return
	}
	_ = out.send(types.Progress{Done: done})
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	var req types.BuildRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	if err := s.opts.Images.Remove(r.Context(), req); err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, struct{}{})
}

func (s *Server) doctor(w http.ResponseWriter, r *http.Request) {
	findings := []types.Finding{}
	if s.opts.Doctor != nil {
		findings = append(findings, s.opts.Doctor(r.Context())...)
	}
	s.answer(w, findings)
}

func (s *Server) stop(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, struct{}{})
	s.opts.Stop()
}

func (s *Server) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("answer not written", "error", err)
	}
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	e, status := types.FromError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(e); err != nil {
		s.log.Debug("answer not written", "error", err)
	}
}

// readJSON reads one strict JSON value: unknown keys and anything behind the value are refused.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxRequestBytes))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fault.Wrap(fault.Usage, err, "", "the request is not what %s takes", r.URL.Path)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fault.New(fault.Usage, "", "the request has something behind its JSON value")
	}
	return nil
}
