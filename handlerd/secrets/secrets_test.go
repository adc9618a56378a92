package secrets

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
)

const canary = "hunter2-canary"

// Whatever shows a value, or something that holds one, the canary is nowhere in it.
func TestValueShowsItselfNowhere(t *testing.T) {
	v := New(canary)
	type exported struct{ V Value }
	type hidden struct{ v Value }
	type embedded struct{ Value }
	var log bytes.Buffer
	text, jsonLog := slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewJSONHandler(&log, nil))
	for _, holder := range []any{v, &v, exported{v}, &exported{v}, hidden{v}, &hidden{v}, embedded{v}, []Value{v}, map[string]Value{"a": v}, []hidden{{v}}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10.3s", "%w"} {
			fmt.Fprintf(&log, verb+"\n", holder)
		}
		fmt.Fprintln(&log, holder)
		text.Info("value", "held", holder)
		jsonLog.Info("value", "held", holder, slog.Group("g", "held", holder))
		if data, err := json.Marshal(holder); err == nil {
			log.Write(data)
		}
		if data, err := xml.Marshal(holder); err == nil {
			log.Write(data)
		}
		_ = gob.NewEncoder(&log).Encode(holder) // a type without exported fields is refused
		if data, err := toml.Marshal(holder); err == nil {
			log.Write(data)
		}
		_ = template.Must(template.New("").Parse("{{.}} {{printf \"%#v\" .}}")).Execute(&log, holder)
		_ = htmltemplate.Must(htmltemplate.New("").Parse("<p title={{.}}>{{.}}<script>x = {{.}}</script>")).Execute(&log, holder)
		fmt.Fprintln(&log, errors.Join(fmt.Errorf("with %v", holder)))
	}
	hexed := fmt.Sprintf("%x", canary)
	for _, bad := range []string{canary, canary[:5], hexed, strings.ToUpper(hexed)} {
		if i := strings.Index(log.String(), bad); i >= 0 {
			t.Errorf("it is shown: …%s…", log.String()[max(0, i-40):i+len(bad)])
		}
	}
	if !strings.Contains(log.String(), redacted) || v.Reveal() != canary {
		t.Error("the test looks at nothing")
	}
}

func TestValue(t *testing.T) {
	var zero Value
	if !zero.Empty() || zero.Reveal() != "" || New("x").Empty() {
		t.Error("empty")
	}
	for in, want := range map[string]string{"a": "a", "a\n": "a", "a\r\n": "a", "a\n\n": "a\n", " a ": " a ", "": ""} {
		if got := New(in).TrimNewline().Reveal(); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", canary+"\n", 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	large := file("large", "", 0o600)
	if err := os.Truncate(large, MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"good", good, ""},
		{"read only", file("ro", canary, 0o400), ""},
		{"as large as may be", file("limit", strings.Repeat("x", MaxBytes), 0o600), ""},
		{"open to all", file("all", canary, 0o644), "chmod 600 " + filepath.Join(dir, "all")},
		{"open to the group", file("group", canary, 0o620), "mode 0620"},
		{"symlink", link, "is a symlink"},
		{"missing", filepath.Join(dir, "none"), "does not exist"},
		{"folder", dir, "not a regular file"},
		{"fifo", fifo, "not a regular file"},
		{"socket", filepath.Join(dir, "s"), "cannot be opened"},
		{"device", "/dev/null", "not a regular file"},
		{"empty", file("empty", "", 0o600), "is empty"},
		{"too large", large, "more than 1 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Read(tt.path)
			if tt.want == "" {
				if err != nil || v.Empty() {
					t.Fatalf("%v", err)
				}
				return
			}
			var fault *FileError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), tt.want) || fault.Remedy == "" {
				t.Fatalf("got %v, want it to say %q", err, tt.want)
			}
			if strings.Contains(err.Error(), canary) || !v.Empty() {
				t.Fatal("a refused secret is shown")
			}
		})
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	if v, _ := Read(good); v.Reveal() != canary+"\n" {
		t.Errorf("%q", v.Reveal())
	}
}

// A file of another user's is refused even where its mode is right.
func TestReadOfAnotherUsersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := Read("/etc/shadow"); err == nil {
			t.Error("read")
		}
		return
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "does not belong to you") {
		t.Error(err)
	}
}
