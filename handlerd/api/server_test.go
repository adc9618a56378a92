package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoRuns starts runs whose agent says every line back.
type echoRuns struct {
	refuse  error
	aborted chan string
}

type echoRun struct{ runs *echoRuns }

func (r *echoRuns) Start(_ context.Context, req types.RunRequest) (api.Run, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	if req.Agent != "demo" {
		return nil, fault.New(fault.NotFound, "see: handler agent list", "there is no agent %q", req.Agent)
	}
	return echoRun{r}, nil
}
func (r *echoRuns) List(context.Context) []types.Run { return nil }
func (r *echoRuns) Count() int                       { return 0 }
func (r *echoRuns) Find(_ context.Context, id string) (types.Run, error) {
	return types.Run{ID: id}, nil
}
func (r *echoRuns) Kill(context.Context, string) error { return errors.New("cannot") }
func (r *echoRuns) Servers(string) ([]types.Server, error) {
	return []types.Server{{Name: "playwright"}}, nil
}
func (r *echoRuns) StopServers(_, name string) ([]string, error) { return []string{name}, nil }
func (r *echoRuns) Log(_ context.Context, _ string, _ bool, line func(types.LogLine) error) error {
	for i := range 3 {
		if err := line(types.LogLine{From: "agent", Text: fmt.Sprint("line ", i)}); err != nil {
			return err
		}
	}
	return nil
}

func (echoRun) ID() string { return "k3f9" }
func (r echoRun) Serve(_ context.Context, conn net.Conn) error {
	defer conn.Close()
	_, err := io.Copy(conn, conn)
	return err
}
func (r echoRun) Abort() { r.runs.aborted <- r.ID() }

type noImages struct{}

func (noImages) List(context.Context) ([]types.Image, error) { return []types.Image{}, nil }
func (noImages) Build(_ context.Context, req types.BuildRequest, progress func(types.Progress)) (string, error) {
	progress(types.Progress{Step: "one"})
	if req.Name == "broken" {
		return "", fault.New(fault.Failed, "mend it", "it broke")
	}
	return "built " + req.Name, nil
}
func (noImages) Remove(context.Context, types.BuildRequest) error { return nil }

func serve(t *testing.T, runs *echoRuns) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := api.New(api.Options{Runs: runs, Images: noImages{}, Stop: func() {}, Version: "v1"})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestRunIsItsConnection(t *testing.T) {
	c := client.New(serve(t, &echoRuns{}))
	stream, err := c.Start(t.Context(), types.RunRequest{Agent: "demo", Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.RunID != "k3f9" {
		t.Errorf("run id %q", stream.RunID)
	}
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stream).ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// TestEarlyLines sends ACP lines in the same packet as the request: none may be lost.
func TestEarlyLines(t *testing.T) {
	conn, err := net.Dial("unix", serve(t, &echoRuns{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"agent":"demo","cwd":"/"}`
	fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: acp\r\nContent-Length: %d\r\n\r\n%searly\n", len(body), body)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "early\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestErrorsTravel(t *testing.T) {
	want := fault.New(fault.Refused, "name a project folder", "the scope / is the whole machine")
	c := client.New(serve(t, &echoRuns{refuse: want}))
	_, err := c.Start(t.Context(), types.RunRequest{Agent: "demo"})
	got := fault.Of(err)
	if got.Kind != fault.Refused || got.Text != want.Text || got.Hint != want.Hint {
		t.Errorf("got %+v", got)
	}
	if err := c.Kill(t.Context(), "x"); fault.Of(err).Text != "cannot" {
		t.Errorf("kill: %v", err)
	}
}

// A program of the person's cannot start a run as the page.
func TestRunIsNotThePages(t *testing.T) {
	c := client.New(serve(t, &echoRuns{}))
	_, err := c.Start(t.Context(), types.RunRequest{Agent: "demo", Cwd: "/", Client: types.ClientPage})
	if fault.Of(err).Kind != fault.Usage {
		t.Errorf("got %v", err)
	}
}

func TestStrictRequests(t *testing.T) {
	socket := serve(t, &echoRuns{})
	for _, tt := range []struct {
		name, request string
		status        int
		says          string
	}{
		{"no upgrade", "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400, "upgrade"},
		{"unknown key", post(`{"agent":"demo","sudo":true}`), 400, "sudo"},
		{"two values", post(`{"agent":"demo"}{}`), 400, "behind"},
		{"no JSON", post(`agent=demo`), 400, "not what"},
		{"too large", post(`{"agent":"` + strings.Repeat("a", api.MaxRequestBytes) + `"}`), 400, "large"},
		{"unknown agent", post(`{"agent":"nobody"}`), 404, "nobody"},
		{"unknown path", "GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "no GET /v1/nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go io.WriteString(conn, tt.request) // a refused body may not be read to its end
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.says) {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

func post(body string) string {
	return fmt.Sprintf("POST /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: acp\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestStreams(t *testing.T) {
	c := client.New(serve(t, &echoRuns{}))
	var lines []string
	if err := c.Log(t.Context(), "x", false, func(l types.LogLine) error { lines = append(lines, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"line 0", "line 1", "line 2"}, lines); diff != "" {
		t.Error(diff)
	}
	var steps []types.Progress
	tell := func(p types.Progress) { steps = append(steps, p) }
	if err := c.Build(t.Context(), types.BuildRequest{Name: "x"}, tell); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]types.Progress{{Step: "one"}, {Done: "built x"}}, steps); diff != "" {
		t.Error(diff)
	}
	if err := c.Build(t.Context(), types.BuildRequest{Name: "broken"}, tell); err == nil || fault.Of(err).Hint != "mend it" {
		t.Errorf("a failed build gave %v", err)
	}
}

func TestNotRunning(t *testing.T) {
	_, err := client.New(filepath.Join(t.TempDir(), "none")).Version(t.Context())
	if !client.NotRunning(err) {
		t.Errorf("%v", err)
	}
}
