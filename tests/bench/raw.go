package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/podman"
	"github.com/handlerd/handler/sandbox/rundir"
)

// rawPodman starts the same sandbox as handlerd by podman's bare API: the same body of the same request, at the same
// service, but with the agent as the container's command and podman's own attachment to its standard streams.
type rawPodman struct {
	socket string
	http   *http.Client
	prefix string // of paths: the API's version, as the driver asks for it
	spec   map[string]any
	driver *podman.Driver
	n      int
}

// owner labels what bench makes by itself.
const owner = "handler-bench"

// newRaw finds the request out by having the driver make the demo agent's sandbox once, over a socket that is listened
// to. What a Spec becomes is the driver's business; bench repeats it and knows nothing of it.
func newRaw(ctx context.Context, b *bench, d *daemon) (r *rawPodman, err error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", d.podman)
	}
	r = &rawPodman{socket: d.podman, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
	recorder := &recorder{next: &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: "d"}) },
		Transport:     &http.Transport{DialContext: dial},
		FlushInterval: -1,
	}}
	socket := filepath.Join(b.dir, "rec.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: recorder}
	go server.Serve(l) //nolint:errcheck // it ends with Close
	defer server.Close()
	recording, err := newDriver(b, socket)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, recording.Close()) }()
	if err := recordStart(ctx, b, d, recording); err != nil {
		return nil, err
	}
	if r.prefix, r.spec, err = recorder.request(); err != nil {
		return nil, err
	}
	if err := r.withoutGuest(); err != nil {
		return nil, err
	}
	// The second driver, past the recorder, keeps the files that the specification mounts and sweeps what is left.
	r.driver, err = newDriver(b, d.podman)
	return r, err
}

func newDriver(b *bench, socket string) (*podman.Driver, error) {
	return podman.New(podman.Options{
		StateDir: filepath.Join(b.dir, "podman"), RunDir: filepath.Join(b.dir, "pr"), Owner: owner, Socket: socket,
	})
}

// recordStart starts and removes the demo agent's sandbox by the driver.
func recordStart(ctx context.Context, b *bench, d *daemon, driver *podman.Driver) error {
	plan, err := d.catalog.Plan("demo", d.scope)
	if err != nil {
		return err
	}
	dir, err := rundir.New(b.dir, "r", rundir.Options{})
	if err != nil {
		return err
	}
	spec := plan.Sandbox
	spec.Name, spec.RunDir, spec.Guest = "handler-bench-recorded", dir.Path(), filepath.Join(b.bin, "handler-guest")
	id, err := driver.Start(ctx, spec)
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	if err := errors.Join(driver.Remove(ctx, id), dir.Close()); err != nil {
		return err
	}
	return os.Mkdir(dir.Path(), 0o700) // the raw sandboxes mount it too, empty
}

// A recorder passes requests on and keeps the one that creates a container.
type recorder struct {
	next http.Handler

	mu   sync.Mutex
	path string
	body []byte
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/containers/create") {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.path, r.body = req.URL.Path, body
		r.mu.Unlock()
	}
	r.next.ServeHTTP(w, req)
}

func (r *recorder) request() (prefix string, spec map[string]any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return "", nil, errors.New("the driver created no container")
	}
	return strings.TrimSuffix(r.path, "/containers/create"), spec, json.Unmarshal(r.body, &spec)
}

// withoutGuest makes the agent the container's own command, with its input open.
func (r *rawPodman) withoutGuest() error {
	var argv []any
	for _, part := range []string{"entrypoint", "command"} {
		words, _ := r.spec[part].([]any)
		argv = append(argv, words...)
	}
	end := slices.Index(argv, any("--"))
	if end < 1 || end+1 == len(argv) || !strings.HasSuffix(fmt.Sprint(argv[0]), "/handler-guest") {
		return fmt.Errorf("the recorded command %v is not the guest's", argv)
	}
	r.spec["entrypoint"], r.spec["command"], r.spec["stdin"] = []any{}, argv[end+1:], true
	return nil
}

// start gives the time from the request that creates a container to the first byte of its agent, and removes it again.
func (r *rawPodman) start(ctx context.Context) (took time.Duration, err error) {
	r.n++
	r.spec["name"] = fmt.Sprintf("handler-bench-%d", r.n)
	r.spec["labels"] = map[string]string{sandbox.LabelOwner: owner}
	body, err := json.Marshal(r.spec)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var made struct{ ID string }
	if err := r.call(ctx, http.MethodPost, "/containers/create", body, &made); err != nil {
		return 0, err
	}
	path := "/containers/" + made.ID
	conn, in, err := r.attach(ctx, path)
	if err != nil {
		return 0, errors.Join(err, r.remove(ctx, path))
	}
	defer conn.Close() // last: with its input the agent would end while it is removed
	defer func() { err = errors.Join(err, r.remove(ctx, path)) }()
	defer until(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, initialize); err != nil {
		return 0, err
	}
	if err := r.call(ctx, http.MethodPost, path+"/start", nil, nil); err != nil {
		return 0, err
	}
	if err := firstByte(in); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// attach joins a connection of its own to the container's standard streams, before it starts.
func (r *rawPodman) attach(ctx context.Context, path string) (net.Conn, *bufio.Reader, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", r.socket)
	if err != nil {
		return nil, nil, err
	}
	_, err = fmt.Fprintf(conn, "POST %s%s/attach?stream=true&stdin=true&stdout=true&stderr=true HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n",
		r.prefix, path)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	in := bufio.NewReader(conn)
	head, err := readHead(in)
	if err != nil || !strings.Contains(head[:min(len(head), 20)], " 101 ") {
		return nil, nil, errors.Join(fmt.Errorf("podman's attach answered %.100q: %w", head, err), conn.Close())
	}
	return conn, in, nil
}

// remove removes a container. Podman refuses while it is busy with the container's own end.
func (r *rawPodman) remove(ctx context.Context, path string) error {
	var err error
	for range 20 {
		if err = r.call(context.WithoutCancel(ctx), http.MethodDelete, path+"?force=true&v=true&timeout=0", nil, nil); err == nil {
			return nil
		}
		if err := rest(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

// firstByte reads to the first byte of standard output: frames have a head of eight bytes, the stream's number first.
func firstByte(in *bufio.Reader) error {
	var said []byte
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return fmt.Errorf("the agent said nothing on its output (%s): %w", said, err)
		}
		if head[0] == 1 {
			_, err := in.ReadByte()
			return err
		}
		n := int(head[4])<<24 | int(head[5])<<16 | int(head[6])<<8 | int(head[7])
		text := make([]byte, min(n, 64<<10))
		if _, err := io.ReadFull(in, text); err != nil {
			return err
		}
		said = append(said, text...)
	}
}

func (r *rawPodman) call(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://d"+r.prefix+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("podman: %s %s: %s: %s", method, path, resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// close removes what may be left.
func (r *rawPodman) close() error {
	r.http.CloseIdleConnections()
	return r.driver.Close()
}
