package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"full", "[engine]\nruntime = \"runc\"\n[toolbox]\nmirror = \"http://mirror.test/debian\"\n[protect]\npaths = [\"Makefile\"]\n", ""},
		{"typo", "[engine]\nsokcet = \"/x\"\n", `handler.toml:2:1: unknown key "engine.sokcet"`},
		{"relative socket", "[engine]\nsocket = \"x\"\n", "engine.socket must be an absolute path"},
		{"runtime", "[engine]\nruntime = \"kata\"\n", "engine.runtime must be crun or runc"},
		{"mirror", "[toolbox]\nmirror = \"ftp://x\"\n", "toolbox.mirror must be an http"},
		{"resolver", "[network]\nresolver = \"[::1]:5353\"\n", ""},
		{"resolver by name", "[network]\nresolver = \"dns.example:53\"\n", "network.resolver must be the address and port"},
		{"resolver without a port", "[network]\nresolver = \"192.0.2.1\"\n", "network.resolver must be the address and port"},
		{"resolver everywhere", "[network]\nresolver = \"0.0.0.0:53\"\n", "network.resolver must be the address and port"},
		{"escape", "[protect]\npaths = [\"../x\"]\n", "must be a path below a scope"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "handler.toml")
			if err := os.WriteFile(path, []byte(tt.in), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.toml")); err != nil {
		t.Fatalf("a file that is not there: %v", err)
	}
}
