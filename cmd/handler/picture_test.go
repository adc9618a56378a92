package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestSavePicture(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache", "approvals")
	if _, err := savePicture(dir, "aaaaaa", []byte("old")); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * keepPictures)
	if err := os.Chtimes(filepath.Join(dir, "aaaaaa.png"), past, past); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		path, err := savePicture(dir, "bbbbbb", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q %v", got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}

func TestInlinePicture(t *testing.T) {
	png := bytes.Repeat([]byte{0x89, 0xff, 0}, 4000)
	for name, test := range map[string]struct {
		env  map[string]string
		want string // how it begins
	}{
		"xterm":             {map[string]string{"TERM": "xterm-256color"}, ""},
		"kitty":             {map[string]string{"TERM": "xterm-kitty"}, "\x1b_Gf=100,a=T,q=2,m=1;"},
		"iTerm":             {map[string]string{"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;size=12000:"},
		"kitty behind tmux": {map[string]string{"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, ""},
		"iTerm behind tmux": {map[string]string{"TERM": "xterm", "TMUX": "/tmp/x", "TERM_PROGRAM": "iTerm.app"}, ""},
	} {
		got := inlinePicture(func(name string) string { return test.env[name] }, png)
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %.60q", name, got)
		}
		if strings.HasPrefix(got, "\x1b_G") {
			var data string
			for _, m := range regexp.MustCompile(`\x1b_G[^;]*m=([01]);([^\x1b]+)\x1b\\`).FindAllStringSubmatch(got, -1) {
				if len(m[2]) > kittyChunk {
					t.Errorf("a part of %d bytes", len(m[2]))
				}
				data += m[2]
			}
			if back, err := base64.StdEncoding.DecodeString(data); err != nil || !bytes.Equal(back, png) {
				t.Errorf("%d bytes come out, %v", len(back), err)
			}
		}
	}
}
