package acp_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/handlerd/handler/handlerd/acp"
)

func TestResolve(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return root + "/" + name } // not Join, which cleans
	for _, dir := range []string{"scope/sub", "outside/deep"} {
		if err := os.MkdirAll(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("scope/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"scope/out": in("outside/deep"), "scope/dangling": in("outside/new"), "link": in("scope"), "scope/loop": in("scope/loop")} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"scope":                  "scope",
		"scope/":                 "scope",
		"link/file":              "scope/file",
		"scope/new":              "scope/new",
		"link/new":               "scope/new",
		"scope/out":              "outside/deep",
		"scope/out/new":          "outside/deep/new",
		"scope/out/../new":       "scope/new", // resolved as it is cleaned; whoever uses it is given this result
		"scope/out/..":           "outside",   // as the kernel does
		"scope/sub/../file":      "scope/file",
		"scope/dangling":         "",
		"scope/dangling/x":       "",
		"scope/missing/x":        "",
		"scope/loop":             "",
		"scope/file/x":           "",
		"scope/file/../dangling": "",
	} {
		got, err := acp.Resolve(in(path))
		if want == "" {
			if err == nil {
				t.Errorf("%s gives %s", path, got)
			}
			continue
		}
		if err != nil || got != in(want) {
			t.Errorf("%s gives %s, %v; want %s", path, got, err, in(want))
		}
	}
	if got, err := acp.Resolve("scope"); err == nil {
		t.Errorf("a relative path gives %s", got)
	}
}
