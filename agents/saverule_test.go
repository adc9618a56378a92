package agents

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSaveRules changes rules below comments, and leaves files alone that it does not understand.
func TestSaveRules(t *testing.T) {
	dir := t.TempDir()
	save := func(text string) string {
		t.Helper()
		path := filepath.Join(dir, "web.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	allow := func(a *Agent) error { return a.Allow("new.example.org", "bad.example.org") }
	fine := func(*Agent) error { return nil }

	path := save("# the shop\nharness = \"demo\"\n\n[network]\nallow = [\n  \"a.example.org\", # the shop's own\n]\ndeny = [\"bad.example.org\"]\n")
	a, err := SaveRules(dir, "web", allow, fine)
	if err != nil || len(a.Network.Allow) != 3 || len(a.Network.Deny) != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	want := "# the shop\nharness = \"demo\"\n\n[network]\nallow = [\n  \"a.example.org\", # the shop's own\n  \"new.example.org\",\n  \"bad.example.org\",\n]\ndeny = []\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := SaveRules(dir, "web", allow, fine); err != nil {
		t.Errorf("the same again: %v", err)
	}

	// Those of a hosted server's, in a table that is there and in one that is not.
	server := func(a *Agent) error {
		b := a.Bindings["notes"]
		err := b.Network.Allows("api.example.org")
		a.Bindings["notes"] = b
		return err
	}
	for text, want := range map[string]string{
		"harness = \"demo\"\n\n[bindings.notes] # mine\nplacement = \"hosted\"\n\n[limits]\nmemory = \"1GB\"\n":                                  "\n[limits]\nmemory = \"1GB\"\n\n[bindings.notes.network]\nallow = [\"api.example.org\"]\n",
		"harness = \"demo\"\n\n[bindings.notes] # mine\n\n[bindings.notes.network]\nallow = [\"b.example.org\"]\n\n[limits]\nmemory = \"1GB\"\n": "\n[bindings.notes.network]\nallow = [\"b.example.org\", \"api.example.org\"]\n\n[limits]\nmemory = \"1GB\"\n",
	} {
		path := save(text)
		if _, err := SaveRules(dir, "web", server, fine); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(got), want) || !strings.Contains(string(got), "[bindings.notes] # mine\n") {
			t.Errorf("%v\n%s", err, got)
		}
	}

	for _, text := range []string{
		"harness = \"demo\"\nnetwork.allow = [\"x.example.org\"]\n",
		"harness = \"demo\"\nnetwork = { allow = [] }\n",
	} {
		path := save(text)
		_, err := SaveRules(dir, "web", allow, fine)
		if err == nil || !strings.Contains(err.Error(), "handler agent edit web") {
			t.Errorf("%s: %v", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("it is now\n%s", got)
		}
	}
	no := errors.New("it does not render")
	save("harness = \"demo\"\n")
	if _, err := SaveRules(dir, "web", allow, func(*Agent) error { return no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	var missing *NotFoundError
	if _, err := SaveRules(dir, "wep", allow, fine); !errors.As(err, &missing) || missing.Near != "web" {
		t.Errorf("%v", err)
	}
}
