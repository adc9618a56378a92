package sessions

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/preview"
	"github.com/handlerd/handler/sandbox/fake"
)

// A browser session sees the run's scopes and its registered apps, reaches them through the run's own guest, and
// nothing of it is left when the run ends first.
func TestPreviews(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	agent, ended := join(t, r)
	defer agent.Close()
	// One of the ports that apps may have; the fake's sandbox has the host's loopback.
	var l net.Listener
	port := preview.MinPort
	for ; port <= preview.MaxPort; port++ {
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the app at "+r.Host) })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Close(); <-served }()
	write(t, filepath.Join(w.scope, "index.html"), "<p>mine")
	write(t, filepath.Join(w.scope, preview.AppsFile), fmt.Sprintf(`{"apps":{"shop":{"port":%d}}}`, port))
	local, done := w.m.Previews(r.ID(), "s1")
	if local == nil {
		t.Fatal("no previews")
	}
	get := func(address string) *httptest.ResponseRecorder {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, address, nil)
		local(req.URL.Hostname()).ServeHTTP(rec, req)
		return rec
	}
	to := get("http://files.workspace.invalid/index.html").Header().Get("Location")
	if body := get(to).Body.String(); body != "<p>mine" {
		t.Errorf("%s: %q", to, body)
	}
	if body := get("http://shop.workspace.invalid/").Body.String(); body != fmt.Sprintf("the app at localhost:%d", port) {
		t.Errorf("%q", body)
	}
	if local("example.org") != nil {
		t.Error("a host of the web is answered")
	}
	if err := w.m.Kill(t.Context(), r.ID()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if rec := get("http://shop.workspace.invalid/"); rec.Code != http.StatusBadGateway || !strings.Contains(rec.Body.String(), "not running") {
		t.Errorf("after the run: %d %q", rec.Code, rec.Body)
	}
	done()
	if local, done := w.m.Previews(r.ID(), "s1"); local != nil {
		t.Error("a run that is gone has previews")
		done()
	}
	w.nothingLeft(t)
}
