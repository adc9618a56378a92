package toolbox

import (
	"testing"
	"testing/fstest"
)

func TestMachineMirror(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	own := mirror{debianMirror, debianSecurity}
	for _, tt := range []struct {
		name string
		etc  fstest.MapFS
		want mirror
	}{
		{"nothing", fstest.MapFS{}, own},
		{"one-line", fstest.MapFS{"sources.list": file("# deb http://old/debian stable main\ndeb [arch=amd64 signed-by=/x] http://m.test/debian/ bookworm main contrib\ndeb http://s.test/debian-security bookworm-security main\n")},
			mirror{"http://m.test/debian", "http://s.test/debian-security"}},
		{"deb822", fstest.MapFS{"sources.list.d/debian.sources": file("Types: deb deb-src\nURIs: http://m.test/debian\nSuites: trixie\n trixie-updates\nComponents: main\n\nTypes: deb\nURIs: http://s.test/debian-security\nSuites: trixie-security\nComponents: main\n")},
			mirror{"http://m.test/debian", "http://s.test/debian-security"}},
		{"disabled", fstest.MapFS{"sources.list.d/debian.sources": file("Enabled: no\nTypes: deb\nURIs: http://m.test/debian\nSuites: trixie\nComponents: main\n")}, own},
		{"another distribution", fstest.MapFS{"sources.list": file("deb http://archive.ubuntu.com/ubuntu noble main\ndeb http://security.ubuntu.com/ubuntu noble-security main\n")}, own},
		{"third parties", fstest.MapFS{"sources.list.d/node.list": file("deb https://deb.nodesource.com/node_20.x nodistro main\n"), "sources.list.d/x.sources": file("Types: deb\nURIs: https://x.test/apt\nSuites: stable\nComponents: contrib\n")}, own},
		{"local files", fstest.MapFS{"sources.list": file("deb file:/srv/debian trixie main\n")}, own},
		{"backup", fstest.MapFS{"sources.list.d/old.list.save": file("deb http://m.test/debian trixie main\n")}, own},
	} {
		if got := machineMirror(tt.etc); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestGivenMirror(t *testing.T) {
	for in, want := range map[string]mirror{
		"http://m.test/debian/":    {"http://m.test/debian", "http://m.test/debian-security"},
		"https://m.test/mirror/de": {"https://m.test/mirror/de", debianSecurity},
	} {
		if got, err := givenMirror(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "m.test/debian", "ftp://m.test/debian", "http://", "http://m.test/debian trixie main", "http://m.test/[x]"} {
		if got, err := givenMirror(in); err == nil {
			t.Errorf("%q was taken for %v", in, got)
		}
	}
}
