package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/sandbox"
)

var update = flag.Bool("update", false, "write what Render gives into testdata")

// input makes an Input of an archive: agent.toml, harness.toml, addon files of any name, skill files below skills/.
func input(t testing.TB, a *txtar.Archive) (Input, error) {
	t.Helper()
	in := Input{Home: "/home/ana", Cwd: "/home/ana/src/shop", StateDir: "/home/ana/.local/state/handler", Skills: map[string][]SkillFile{}}
	for _, f := range a.Files {
		var err error
		switch {
		case f.Name == "agent.toml":
			in.Agent, err = agents.Parse("web", f.Name, f.Data)
		case f.Name == "harness.toml":
			in.Harness, err = harness.Parse(f.Name, f.Data)
		case f.Name == "hosted":
			in.Hosted = strings.Fields(string(f.Data))
		case strings.HasPrefix(f.Name, "skills/"):
			addon, path, _ := strings.Cut(strings.TrimPrefix(f.Name, "skills/"), "/")
			in.Skills[addon] = append(in.Skills[addon], SkillFile{Path: path, Content: f.Data})
		case strings.HasSuffix(f.Name, ".toml"):
			var m *addons.Manifest
			if m, err = addons.Parse(f.Name, f.Data); err == nil {
				in.Addons = append(in.Addons, m)
			}
		}
		if err != nil {
			return in, err
		}
	}
	if in.Agent == nil && in.Harness != nil {
		in.Agent = agents.Builtin(in.Harness.Name)
	}
	return in, nil
}

// Each archive of testdata has an agent (or none: the built-in one), a harness, addons, and plan.json or error.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no archives", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, err := input(t, a)
			if err != nil {
				t.Fatal(err)
			}
			name, got := "plan.json", []byte(nil)
			plan, err := Render(in)
			if err != nil {
				name, got = "error", []byte(err.Error()+"\n")
			} else if got, err = plan.JSON(); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "plan.json" || f.Name == "error" })
			if *update {
				if i < 0 {
					a.Files, i = append(a.Files, txtar.File{}), len(a.Files)
				}
				a.Files[i] = txtar.File{Name: name, Data: got}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 {
				t.Fatal("the archive has no plan.json and no error: run with -update")
			}
			if diff := cmp.Diff(a.Files[i].Name+"\n"+string(a.Files[i].Data), name+"\n"+string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func archive(t testing.TB, name string) Input {
	t.Helper()
	a, err := txtar.ParseFile("testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	in, err := input(t, a)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// B.1: the same input gives the same Plan, byte for byte, whatever the order of addons and the seed of maps; and the
// input is as it was.
func TestRenderIsDeterministicAndPure(t *testing.T) {
	before := archive(t, "whole")
	var first *Plan
	for i := range 50 {
		in := archive(t, "whole")
		if i%2 == 1 {
			slices.Reverse(in.Addons)
		}
		p, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		}
		if diff := cmp.Diff(first, p); diff != "" {
			t.Fatal(diff)
		}
	}
	in := archive(t, "whole")
	p, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	p.Sandbox.Command[0], p.Sandbox.Env["CACHE"], p.MCPTransports[0] = "changed", "changed", "changed"
	p.Upstreams[0].Methods[0], p.Upstreams[0].Env["BASE_URL"], p.Upstreams[0].Extra["beta"] = "changed", "changed", "changed"
	p.SessionDefaults.MCPServers[0].Args[0] = "changed"
	for _, f := range p.Sandbox.Files {
		f.Content[0] = '#'
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("what is done to a Plan is done to its input: %s", diff)
	}
}

// B.2 and pitfalls A01 and A03: arrays are always there, and a stdio server has no type.
func TestServersAsACPWritesThem(t *testing.T) {
	p, err := Render(archive(t, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p.SessionDefaults.MCPServers)
	if err != nil {
		t.Fatal(err)
	}
	var servers []map[string]json.RawMessage
	if err := json.Unmarshal(data, &servers); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		keys := []string{"args", "env"}
		if s["type"] != nil {
			keys = []string{"headers"}
		}
		for _, key := range keys {
			if !bytes.HasPrefix(s[key], []byte("[")) {
				t.Errorf("%s of %s is %s", key, s["name"], s[key])
			}
		}
		if bytes.Equal(s["type"], []byte(`"stdio"`)) {
			t.Errorf("%s has a type", s["name"])
		}
	}
	empty, err := Render(archive(t, "builtin"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := json.Marshal(empty.SessionDefaults.MCPServers); err != nil || string(data) != "[]" {
		t.Errorf("%s, %v", data, err)
	}
}

// What a person sees of a Plan has no token in it, and the Plan no secret.
func TestPlanShowsNoToken(t *testing.T) {
	for _, name := range []string{"whole", "pi"} {
		p, err := Render(archive(t, name))
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("hunter2")) {
			t.Errorf("%s: a header's value is shown:\n%s", name, data)
		}
		found := slices.ContainsFunc(p.SessionDefaults.MCPServers, func(s MCPServer) bool {
			return len(s.Headers) > 0 && strings.Contains(s.Headers[0].Value, "hunter2")
		})
		if !found {
			t.Errorf("%s: there is nothing to show: the test looks at nothing", name)
		}
	}
}

// Every file of a Plan lies on a tmpfs, and none in a scope or a state volume (A.1).
func checkFiles(t *testing.T, p *Plan) {
	t.Helper()
	for _, f := range p.Sandbox.Files {
		inner, memory := "", false
		look := func(target string, isMemory bool) {
			if within(f.Path, target) && len(target) >= len(inner) {
				inner, memory = target, isMemory
			}
		}
		look(sandbox.HomeTarget, true)
		look("/tmp", true)
		for _, x := range p.Sandbox.Tmpfs {
			look(x.Target, true)
		}
		for _, x := range p.Sandbox.Volumes {
			look(x.Target, false)
		}
		for _, x := range p.Sandbox.Mounts {
			look(x.Target, false)
		}
		if !memory {
			t.Errorf("the file %s lies in %q, which is no tmpfs", f.Path, inner)
		}
	}
}

func TestShippedHarnessesRender(t *testing.T) {
	r, err := harness.Load("")
	if err != nil {
		t.Fatal(err)
	}
	known, err := addons.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.List() {
		in := Input{Agent: agents.Builtin(m.Name), Harness: m, Addons: known.List(), Home: "/home/ana", Cwd: "/home/ana/src", StateDir: "/s"}
		p, err := Render(in)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		checkFiles(t, p)
		if !slices.ContainsFunc(p.SessionDefaults.MCPServers, func(s MCPServer) bool { return s.Name == "playwright" }) {
			t.Errorf("%s has no browser", m.Name)
		}
	}
}

// FuzzRender: any agent, harness and addon that are accepted by themselves render without a panic, twice the same,
// and with every file on a tmpfs.
func FuzzRender(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		part := map[string]string{}
		for _, file := range a.Files {
			part[file.Name] = string(file.Data)
			if _, err := addons.Parse(file.Name, file.Data); err == nil {
				part["addon"] = string(file.Data)
			}
		}
		f.Add(part["agent.toml"], part["harness.toml"], part["addon"])
	}
	f.Fuzz(func(t *testing.T, agent, manifest, addon string) {
		in, err := input(t, &txtar.Archive{Files: []txtar.File{
			{Name: "agent.toml", Data: []byte(agent)}, {Name: "harness.toml", Data: []byte(manifest)},
			{Name: "addon.toml", Data: []byte(addon)}, {Name: "skills/x/a/SKILL.md", Data: []byte(addon)},
		}})
		if err != nil {
			return
		}
		p, err := Render(in)
		if err != nil {
			return
		}
		checkFiles(t, p)
		again, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatal(diff)
		}
		if _, err := p.JSON(); err != nil {
			t.Fatal(err)
		}
	})
}
