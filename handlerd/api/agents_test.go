package api_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
)

// serveOptions serves an API and gives a client of it.
func serveOptions(t *testing.T, o api.Options) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	o.Runs, o.Stop = &echoRuns{}, func() {}
	s := api.New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return client.New(socket)
}

func TestAgents(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "home", "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := &catalog.Keeper{
		Catalog: catalog.Catalog{Config: filepath.Join(dir, "config"), State: filepath.Join(dir, "state"), Home: filepath.Join(dir, "home")},
		Scopes:  func() (scopes.Config, error) { return scopes.Config{Home: filepath.Join(dir, "home")}, nil },
		Display: func(context.Context) types.DisplayState { return types.DisplayState{Chosen: "/run/w"} },
		Changed: func() {},
	}
	c, ctx := serveOptions(t, api.Options{Agents: k}), t.Context()
	text := "harness = \"demo\" # mine\n"
	made, err := c.SaveAgent(ctx, "web", types.AgentEdit{TOML: text}, "")
	if err != nil || made.Etag == "" || made.TOML != text {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := c.SaveAgent(ctx, "web", types.AgentEdit{TOML: text}, ""); fault.Of(err).Kind != fault.Conflict {
		t.Errorf("got %v", err)
	}
	changed, err := c.SaveAgent(ctx, "web", types.AgentEdit{Settings: []byte(`{"harness":"demo","description":"x"}`)}, made.Etag)
	if err != nil || changed.Description != "x" {
		t.Errorf("%+v, %v", changed, err)
	}
	if d, err := c.Agent(ctx, "web"); err != nil || d.Etag != changed.Etag {
		t.Errorf("%+v, %v", d, err)
	}
	list, err := c.Agents(ctx)
	if err != nil || len(list) < 3 || list[0].Name != "web" || list[0].File == "" {
		t.Errorf("%+v, %v", list, err)
	}
	if v, err := c.CheckAgent(ctx, types.AgentEdit{Name: "n", TOML: "x = 1"}); err != nil || len(v.Errors) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := c.RemoveAgent(ctx, "web", made.Etag); fault.Of(err).Kind != fault.Conflict {
		t.Errorf("got %v", err)
	}
	if err := c.RemoveAgent(ctx, "web", changed.Etag); err != nil {
		t.Error(err)
	}
	if v, err := c.Harnesses(ctx); err != nil || len(v.Harnesses) == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.Addons(ctx); err != nil || len(v.Addons) == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.Presets(ctx); err != nil || len(v) == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.Display(ctx); err != nil || v.Chosen != "/run/w" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.Folders(ctx, ""); err != nil || len(v.Folders) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := serveOptions(t, api.Options{}).Agents(ctx); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit", "audit.jsonl")
	log, err := audit.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	for _, r := range []audit.Record{
		{Kind: audit.KindStart, Run: "k3f9", Agent: "web"}, {Kind: audit.KindNetwork, Run: "k3f9", Agent: "web", Verdict: audit.Refused, Subject: "x.example:443"},
		{Kind: audit.KindStart, Run: "p0c2", Agent: "docs"}, {Kind: audit.KindAnswer, Run: "k3f9", Agent: "web", Session: "s1", Verdict: audit.Allowed},
	} {
		if err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	c := serveOptions(t, api.Options{AuditFile: file})
	for want, f := range map[string]client.AuditFilter{
		"start network start answer": {}, "network": {Verdict: audit.Refused}, "start": {Run: "p0"}, "start start": {Kinds: []string{audit.KindStart}},
		"answer": {Session: "s1"}, "start answer": {Last: 2}, "start network answer": {Agent: "web"},
	} {
		var got []string
		if err := c.Audit(t.Context(), f, func(r types.AuditRecord) error { got = append(got, r.Kind); return nil }); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%+v: %v, %v; want %s", f, got, err, want)
		}
	}
	for _, f := range []client.AuditFilter{{Last: api.MaxAudit + 1}, {Kinds: []string{"none"}}} {
		if err := c.Audit(t.Context(), f, nil); fault.Of(err).Kind != fault.Usage {
			t.Errorf("%+v: %v", f, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	if err := c.Audit(ctx, client.AuditFilter{Follow: true}, func(types.AuditRecord) error {
		if n++; n == 4 { // it goes on with what comes
			return log.Append(audit.Record{Kind: audit.KindStop, Run: "k3f9"})
		}
		if n == 5 {
			cancel()
		}
		return nil
	}); err == nil || n != 5 {
		t.Errorf("%d records, %v", n, err)
	}
}
