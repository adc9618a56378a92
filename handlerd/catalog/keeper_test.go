package catalog

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
)

func keeper(t *testing.T, files map[string]string) (*Keeper, *int) {
	t.Helper()
	c := catalog(t, files)
	if err := os.MkdirAll(filepath.Join(c.Home, "src", "shop"), 0o755); err != nil {
		t.Fatal(err)
	}
	changes := 0
	return &Keeper{
		Catalog: c,
		Scopes:  func() (scopes.Config, error) { return scopes.Config{Home: c.Home, Handler: []string{c.Config}}, nil },
		Display: func(context.Context) types.DisplayState {
			return types.DisplayState{Chosen: "/run/w", Sockets: []types.DisplaySocket{{Path: "/run/w", Says: "it can take pictures of the screen"}}}
		},
		Changed: func() { changes++ },
	}, &changes
}

func settingsOf(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func want(t *testing.T, err error, kind fault.Kind, says string) {
	t.Helper()
	if err == nil || fault.Of(err).Kind != kind || !strings.Contains(fault.Of(err).Error(), says) {
		t.Errorf("got %v, want kind %d and %q", err, kind, says)
	}
}

func TestDetail(t *testing.T) {
	k, _ := keeper(t, map[string]string{
		"agents/web.toml":  "# mine\nharness = \"demo\"\n[[scopes]]\npath = \"~/src\"\n",
		"agents/typo.toml": "harness = \"demo\"\nscope = 1\n",
		"agents/gone.toml": "harness = \"none\"\n",
		"agents/home.toml": "harness = \"demo\"\n[[scopes]]\npath = \"~/.ssh\"\n",
	})
	if err := os.Mkdir(filepath.Join(k.Home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := k.Detail("web")
	if err != nil || len(d.Errors) != 0 || d.Etag == "" || !strings.HasPrefix(d.TOML, "# mine") || string(d.Settings) != `{"harness":"demo","scopes":[{"path":"~/src"}]}` {
		t.Errorf("%+v, %v", d, err)
	}
	var defaults struct {
		Limits   struct{ Memory, Idle, Lifetime string }
		Bindings map[string]struct{ Settings map[string]string }
	}
	if err := json.Unmarshal(d.Defaults, &defaults); err != nil || defaults.Limits.Memory != "4GiB" || defaults.Limits.Idle != "24h" || defaults.Bindings["playwright"].Settings == nil {
		t.Errorf("defaults %s, %v", d.Defaults, err)
	}
	if d, err := k.Detail("demo"); err != nil || d.File != "" || d.Etag != "" || string(d.Settings) != `{"harness":"demo"}` || d.TOML != "harness = \"demo\"\n" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := k.Detail("typo"); err != nil || len(d.Errors) != 1 || d.Errors[0].Line != 2 || d.Errors[0].Column != 1 || string(d.Settings) != "null" || d.Etag == "" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, name := range []string{"gone", "home"} {
		if d, err := k.Detail(name); err != nil || len(d.Errors) != 1 || len(d.Settings) < 10 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	_, err = k.Detail("nobody")
	want(t, err, fault.NotFound, "nobody")
}

// The defaults have no key that a file has not.
func TestDefaultsAreAFiles(t *testing.T) {
	k, _ := keeper(t, nil)
	raw, err := k.defaults()
	if err != nil {
		t.Fatal(err)
	}
	check, err := k.CheckEdit(t.Context(), types.AgentEdit{Name: "a", Settings: json.RawMessage(`{"harness":"demo",` + string(raw[1:]))})
	if err != nil || len(check.Errors) != 0 {
		t.Errorf("%+v, %v", check.Errors, err)
	}
}

func TestPut(t *testing.T) {
	k, changes := keeper(t, nil)
	text := "# mine\nharness = \"demo\"\n[network]\nallow = [\"a.example\"] # why\n"
	_, err := k.Put("web", types.AgentEdit{TOML: text}, `"tag"`)
	want(t, err, fault.Conflict, "removed")
	d, err := k.Put("web", types.AgentEdit{TOML: text}, "*")
	if err != nil || d.TOML != text {
		t.Fatalf("%+v, %v", d, err)
	}
	_, err = k.Put("web", types.AgentEdit{TOML: text}, "*")
	want(t, err, fault.Conflict, "already")
	// Of settings, a change of the rules alone keeps the comments.
	edit := map[string]any{"harness": "demo", "network": map[string]any{"allow": []string{"a.example", "b.example"}}}
	again, err := k.Put("web", types.AgentEdit{Settings: settingsOf(edit)}, d.Etag)
	if err != nil || !strings.Contains(again.TOML, `["a.example", "b.example"] # why`) || again.Etag == d.Etag {
		t.Fatalf("%+v, %v", again, err)
	}
	_, err = k.Put("web", types.AgentEdit{Settings: settingsOf(edit)}, d.Etag)
	want(t, err, fault.Conflict, "changed meanwhile")
	edit["display"] = true
	check, err := k.CheckEdit(t.Context(), types.AgentEdit{Name: "web", Settings: settingsOf(edit)})
	notices := strings.Join(check.Notices, "\n")
	if err != nil || len(check.Errors) != 0 || !strings.Contains(notices, "comments") || !strings.Contains(notices, "pictures of the screen") || !strings.Contains(check.TOML, "display = true") {
		t.Errorf("%+v, %v", check, err)
	}
	for what, bad := range map[string]types.AgentEdit{
		"web.toml:2:1":        {TOML: "harness = \"demo\"\nx = 1\n"},
		`unknown key "x"`:     {Settings: json.RawMessage(`{"harness":"demo","x":1}`)},
		"exactly one":         {},
		"not that of":         {Name: "other", TOML: text},
		"no harness":          {Settings: json.RawMessage(`{"harness":"nothing"}`)},
		"your home folder":    {Settings: json.RawMessage(`{"harness":"demo","scopes":[{"path":"~/"}]}`)},
		"Handler's":           {Settings: settingsOf(map[string]any{"harness": "demo", "scopes": []any{map[string]any{"path": k.Config}}})},
		"no JSON object":      {Settings: json.RawMessage(`[1]`)},
		"name every host":     {Settings: json.RawMessage(`{"harness":"demo","network":{"allow":["*"]}}`)},
		"harness is missing":  {TOML: "description = \"x\"\n"},
		"must be \"ro\" or":   {Settings: json.RawMessage(`{"harness":"demo","scopes":[{"path":"~/src","mode":"rwx"}]}`)},
		"is not an amount of": {Settings: json.RawMessage(`{"harness":"demo","limits":{"memory":"2"}}`)},
	} {
		_, err := k.Put("web", bad, again.Etag)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if *changes != 2 {
		t.Errorf("%d changes were told of", *changes)
	}
	want(t, k.Remove("web", `"x"`), fault.Conflict, "changed")
	if err := k.Remove("web", again.Etag); err != nil {
		t.Error(err)
	}
	want(t, k.Remove("web", ""), fault.NotFound, "web")
	want(t, k.Remove("../web", ""), fault.Usage, "")
}

func TestCheckEdit(t *testing.T) {
	k, _ := keeper(t, nil)
	check, err := k.CheckEdit(t.Context(), types.AgentEdit{Name: "a", TOML: "harness = \"demo\"\n\nlimits = 3\n"})
	if err != nil || len(check.Errors) != 1 || check.Errors[0].Line != 3 || string(check.Settings) != "null" {
		t.Errorf("%+v, %v", check, err)
	}
	check, err = k.CheckEdit(t.Context(), types.AgentEdit{Name: "a", Settings: json.RawMessage(`{"harness":"demo","bindings":{"playwright":{"chromium_sandbox":"off"}}}`)})
	if err != nil || len(check.Errors) != 0 || len(check.Notices) == 0 {
		t.Errorf("%+v, %v", check, err)
	}
	_, err = k.CheckEdit(t.Context(), types.AgentEdit{Name: "A b"})
	want(t, err, fault.Usage, "")
}

func TestCwd(t *testing.T) {
	k, _ := keeper(t, map[string]string{"agents/web.toml": "harness = \"demo\"\n[[scopes]]\npath = \"~/src\"\n"})
	home, err := filepath.EvalSymlinks(k.Home)
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{"": home + "/src", "~/src/shop": home + "/src/shop"} {
		if got, err := k.Cwd("web", asked); err != nil || got != want {
			t.Errorf("%q: %q, %v", asked, got, err)
		}
	}
	_, err = k.Cwd("web", k.Home)
	want(t, err, fault.Refused, "outside the scopes")
	_, err = k.Cwd("demo", "")
	want(t, err, fault.Usage, "choose")
	_, err = k.Cwd("demo", "src")
	want(t, err, fault.Usage, "not absolute")
	_, err = k.Cwd("nobody", "")
	want(t, err, fault.NotFound, "nobody")
}

func TestFacts(t *testing.T) {
	k, _ := keeper(t, map[string]string{"harness/bad.toml": "x = 1\n"})
	h, err := k.HarnessList()
	if err != nil || len(h.Harnesses) < 2 || len(h.Problems) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	a, err := k.AddonList()
	if err != nil || len(a.Addons) == 0 || len(a.Addons[0].Settings) == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if len(Presets()) < 10 {
		t.Error("presets are missing")
	}
	if hint := k.LoginHint("claude-code"); !strings.Contains(hint, "--secret anthropic_api_key=FILE") {
		t.Errorf("hint %q", hint)
	}
	if hint := k.LoginHint("demo") + k.LoginHint("nobody"); hint != "" {
		t.Errorf("hint %q", hint)
	}
}

func TestFolders(t *testing.T) {
	k, _ := keeper(t, nil)
	for _, dir := range []string{".hidden", "docs"} {
		if err := os.Mkdir(filepath.Join(k.Home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(k.Home, "link")); err != nil {
		t.Fatal(err)
	}
	l, err := k.Folders("")
	if err != nil || l.Path != k.Home || l.Parent != "" || l.Refused == "" || len(l.Folders) != 2 || l.Folders[0].Name != "docs" || l.Folders[1].Refused != "" {
		t.Errorf("%+v, %v", l, err)
	}
	l, err = k.Folders("~/src")
	if err != nil || l.Parent != k.Home || l.Refused != "" || len(l.Folders) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	for under, says := range map[string]string{
		"/etc": "outside", k.Home + "/../x": "outside", "~/.hidden": "hidden", "~/link": "not a folder", "~/link/ssl": "not a folder", "~/none": "no such", "src": "outside",
	} {
		_, err := k.Folders(under)
		want(t, err, fault.Usage, says)
	}
}
