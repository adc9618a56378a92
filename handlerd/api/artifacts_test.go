package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/fault"
)

const me = "user:1000"

// A shelf is a store behind a real server, with one scope.
type shelf struct {
	*echoRuns
	store   *artifacts.Store
	client  *client.Client
	socket  string
	scope   string
	settled []string // runs that were waited for
}

func (*shelf) Find(_ context.Context, id string) (types.Run, error) {
	if strings.HasPrefix("live", id) {
		return types.Run{ID: "live"}, nil
	}
	return types.Run{}, fault.New(fault.NotFound, "", "no run %s", id)
}

func (s *shelf) SettleArtifacts(_ context.Context, run string) { s.settled = append(s.settled, run) }

func (s *shelf) SaveTarget(_ context.Context, dest types.Destination) (artifacts.SaveRequest, error) {
	if dest.Agent != "web" {
		return artifacts.SaveRequest{}, fault.New(fault.Refused, "choose another", "not there")
	}
	return artifacts.SaveRequest{Scope: s.scope, Folder: dest.Folder, Refuse: func(path string) error {
		if filepath.Base(path) == "mise.toml" {
			return fault.New(fault.Refused, "", "refused by A.9")
		}
		return nil
	}}, nil
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	dir := t.TempDir()
	s := &shelf{socket: filepath.Join(dir, "s"), scope: filepath.Join(dir, "scope")}
	if err := os.Mkdir(s.scope, 0o700); err != nil {
		t.Fatal(err)
	}
	s.store = artifacts.New(filepath.Join(dir, "artifacts"), artifacts.Options{})
	t.Cleanup(func() { s.store.Close() })
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := api.New(api.Options{Runs: s, Images: noImages{}, Artifacts: s.store, Scopes: s, Principal: me, Busy: func() func() { return func() {} }})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(context.Background()), <-done); err != nil {
			t.Error(err)
		}
	})
	s.client = client.New(s.socket)
	return s
}

func (s *shelf) add(t *testing.T, m artifacts.Meta, content string) artifacts.Artifact {
	t.Helper()
	if m.Owner == "" {
		m.Owner = me
	}
	a, err := s.store.Add(t.Context(), m, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// raw makes a request of its own through the whole server, with nothing in between that mends it (H06).
func (s *shelf) raw(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(got)
}

// TestArtifactRanges: the statuses and headers of RFC 9110 come through the real chain of handlers.
func TestArtifactRanges(t *testing.T) {
	s := newShelf(t)
	a := s.add(t, artifacts.Meta{Run: "k3f9", Name: "digits.txt"}, "0123456789")
	path, tag := types.PathArtifacts+"/"+a.ID, `"`+a.SHA256+`"`
	for _, test := range []struct {
		method  string
		headers []string
		status  int
		body    string
		rang    string
	}{
		{"GET", nil, 200, "0123456789", ""},
		{"HEAD", nil, 200, "", ""},
		{"GET", []string{"Range", "bytes=2-3"}, 206, "23", "bytes 2-3/10"},
		{"GET", []string{"Range", "bytes=-2"}, 206, "89", "bytes 8-9/10"},
		{"GET", []string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{"GET", []string{"Range", "bytes=0-1,4-5"}, 200, "0123456789", ""},
		{"GET", []string{"Range", "bytes=0-1", "If-Range", tag}, 206, "01", "bytes 0-1/10"},
		{"GET", []string{"Range", "bytes=0-1", "If-Range", `"x"`}, 200, "0123456789", ""},
		{"GET", []string{"If-None-Match", tag}, 304, "", ""},
		{"GET", []string{"If-Match", `"x"`}, 412, "", ""},
	} {
		resp, body := s.raw(t, test.method, path, "", test.headers...)
		h := resp.Header
		if resp.StatusCode != test.status || body != test.body || h.Get("Content-Range") != test.rang {
			t.Errorf("%s %v: %s %q %q", test.method, test.headers, resp.Status, body, h.Get("Content-Range"))
		}
		if h.Get("ETag") != tag || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") != "sandbox; default-src 'none'" {
			t.Errorf("%s %v: %v", test.method, test.headers, h)
		}
	}
	if resp, _ := s.raw(t, "HEAD", path, ""); resp.ContentLength != 10 || resp.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("HEAD: %d, %v", resp.ContentLength, resp.Header)
	}
	page := s.add(t, artifacts.Meta{Run: "k3f9", Name: "a.png"}, "<!doctype html><script>alert(1)</script>")
	resp, _ := s.raw(t, "GET", types.PathArtifacts+"/"+page.ID, "")
	if got := resp.Header.Get("Content-Type") + " " + resp.Header.Get("Content-Disposition"); got != `application/octet-stream attachment; filename="a.png"` {
		t.Errorf("a page is served as %s", got)
	}
}

// TestArtifactRequests: what is asked wrongly is answered with what to do, another's like none, and nothing is removed
// for want of a word.
func TestArtifactRequests(t *testing.T) {
	s := newShelf(t)
	a := s.add(t, artifacts.Meta{Run: "k3f9", Name: "a"}, "a")
	other := s.add(t, artifacts.Meta{Owner: "user:1001", Run: "k3f9", Name: "b"}, "b")
	all := types.PathArtifacts
	one := all + "/" + a.ID
	for _, test := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"GET", all + "/" + other.ID, "", 404, "there is no artifact"},
		{"HEAD", all + "/" + other.ID, "", 404, ""},
		{"GET", all + "/" + other.ID + "/info", "", 404, "there is no artifact"},
		{"DELETE", all + "/" + other.ID, "", 404, "there is no artifact"},
		{"POST", all + "/" + other.ID, `{"destination":{"agent":"web"}}`, 404, "there is no artifact"},
		{"GET", all + "/..%2f..%2findex.db", "", 404, "there is no artifact"},
		{"GET", all + "/abc", "", 404, "handler artifacts list"},
		{"GET", all + "/%25%25%25%25", "", 404, "there is no artifact"},
		{"GET", all + "?run=k3f9&run=x", "", 400, "each once"},
		{"GET", all + "?owner=user:1001", "", 400, "owner"},
		{"GET", all + "?agent=" + strings.Repeat("x", 5000), "", 400, "agent"},
		{"GET", one + "?download=1", "", 400, "download"},
		{"GET", all + "?run=%zz", "", 400, "query"},
		{"DELETE", all, "", 400, "say run="},
		{"DELETE", all + "?agent=web", "", 400, "say run="},
		{"DELETE", all + "?session=s", "", 400, "say run="},
		{"DELETE", all + "?run=zzzz", "", 404, "has no artifacts"},
		{"PUT", one, "", 404, "the API has no PUT"},
		{"POST", all, "", 404, "the API has no POST"},
		{"POST", one, "", 400, "is not what"},
		{"POST", one, `{"destination":{"agent":"web"},"source":"/etc/passwd"}`, 400, "source"},
		{"POST", one, `{"destination":{"agent":"web"}} {}`, 400, "behind its JSON"},
		{"POST", one, `{"destination":{"agent":"nobody"}}`, 403, "not there"},
		{"POST", one, `{"destination":{"agent":"web"},"conflict":"overwrite"}`, 400, "error, rename or replace"},
		{"POST", one, `{"destination":{"agent":"web"},"name":"../x"}`, 400, "plain file name"},
		{"POST", one, `{"destination":{"agent":"web"},"name":"mise.toml"}`, 403, "refused by A.9"},
		{"POST", one, `{"destination":{"agent":"web","folder":"missing"}}`, 500, "mkdir -p"},
	} {
		resp, body := s.raw(t, test.method, test.path, test.body)
		if resp.StatusCode != test.status || !strings.Contains(body, test.text) {
			t.Errorf("%s %.80s %s: %s %s", test.method, test.path, test.body, resp.Status, body)
		}
	}
	if got, err := s.store.List(t.Context(), me, artifacts.Filter{}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if entries, _ := os.ReadDir(s.scope); len(entries) != 0 {
		t.Errorf("saved: %v", entries)
	}
}

// TestArtifactClient: the Go client and the server agree.
func TestArtifactClient(t *testing.T) {
	s := newShelf(t)
	ctx := t.Context()
	a := s.add(t, artifacts.Meta{Run: "k3f9", Session: "s1", Agent: "web", Name: "a.txt", Source: "tool"}, "0123456789")
	b := s.add(t, artifacts.Meta{Run: "k3zz", Session: "s2", Agent: "web", Name: "b.txt"}, "b")
	list, err := s.client.Artifacts(ctx, client.ArtifactFilter{})
	if err != nil {
		t.Fatal(err)
	}
	want := types.ArtifactList{
		Artifacts: []types.Artifact{s.store.Describe(a), s.store.Describe(b)},
		Usage: types.ArtifactUsage{Count: 2, MaxCount: artifacts.MaxCount, Bytes: 11, MaxBytes: artifacts.MaxTotal, PerRun: artifacts.MaxPerRun,
			Largest: []types.ArtifactShare{{Run: "k3f9", Agent: "web", Count: 1, Bytes: 10}, {Run: "k3zz", Agent: "web", Count: 1, Bytes: 1}}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for filter, want := range map[client.ArtifactFilter]int{
		{Run: "k3f"}: 1, {Run: "k3f9"}: 1, {Run: "li"}: 0, {Run: "none"}: 0, {Agent: "web", Session: "s2"}: 1, {Agent: "docs"}: 0, {Run: "k3f9", Session: "s2"}: 0,
	} {
		if list, err := s.client.Artifacts(ctx, filter); err != nil || len(list.Artifacts) != want {
			t.Errorf("%+v: %d, %v", filter, len(list.Artifacts), err)
		}
	}
	if _, err := s.client.Artifacts(ctx, client.ArtifactFilter{Run: "k3"}); err == nil || fault.Of(err).Kind != fault.Usage || !strings.Contains(fault.Of(err).Hint, "k3f9, k3zz") {
		t.Errorf("two runs: %v", err)
	}
	if strings.Join(s.settled, " ") == "" || s.settled[0] != "" {
		t.Errorf("waited for %q", s.settled)
	}
	got, err := s.client.Artifact(ctx, a.ID[:8])
	if diff := cmp.Diff(s.store.Describe(a), got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, test := range []struct {
		from int64
		tag  string
		want string // content, or "!" and a part of the error
	}{{0, "", "0123456789"}, {7, a.SHA256, "789"}, {10, "", "!shorter"}, {0, b.SHA256, "!other content"}} {
		r, err := s.client.OpenArtifact(ctx, a.ID, test.from, test.tag)
		if part, fails := strings.CutPrefix(test.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(content) != test.want {
			t.Errorf("%+v: %q, %v", test, content, err)
		}
	}
	for i, conflict := range []string{"", "rename", "replace"} {
		path, err := s.client.SaveArtifact(ctx, a.ID, types.ArtifactSave{Destination: types.Destination{Agent: "web"}, Conflict: conflict})
		if err != nil || filepath.Base(path) != []string{"a.txt", "a (2).txt", "a.txt"}[i] {
			t.Errorf("%s: %q, %v", conflict, path, err)
		}
	}
	if _, err := s.client.SaveArtifact(ctx, a.ID, types.ArtifactSave{Destination: types.Destination{Agent: "web"}}); err == nil || !strings.Contains(fault.Of(err).Hint, "--conflict rename") {
		t.Errorf("got %v", err)
	}
	if err := s.client.RemoveArtifact(ctx, a.ID[:6]); err != nil {
		t.Error(err)
	}
	if n, err := s.client.RemoveArtifacts(ctx, client.ArtifactFilter{Agent: "web", Session: "s2"}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := s.client.OpenArtifact(ctx, a.ID, 0, ""); err == nil || fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

// TestArtifactsBroken: the API answers with the remedy, and works when it was followed.
func TestArtifactsBroken(t *testing.T) {
	s := newShelf(t)
	dir := filepath.Join(filepath.Dir(s.socket), "artifacts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "index.db"), []byte(strings.Repeat("no database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.client.Artifacts(t.Context(), client.ArtifactFilter{})
	if err == nil || !strings.Contains(fault.Of(err).Text, "index.db is damaged") || !strings.Contains(fault.Of(err).Hint, "mv "+dir) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.client.Version(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.client.Artifacts(t.Context(), client.ArtifactFilter{}); err != nil || len(list.Artifacts) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
