package toolbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/sandbox"
)

// goodBase is an mmdebstrap that installs two packages.
const goodBase = `cat >&2 <<'X'
I: running apt-get update...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://m/debian trixie/main amd64 one amd64 1 [1 kB]
Unpacking one (1) ...
Setting up one (1) ...
X
printf 'tar archive'
`

func TestBuildDefaultToolbox(t *testing.T) {
	r := newRoom(t, goodBase, "")
	ctx := t.Context()
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, r.event); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"installing Debian trixie", "importing the base system", "building the toolbox", "trying its tools"}, r.steps(t)); diff != "" {
		t.Error(diff)
	}
	if string(r.images.imported) != "tar archive" {
		t.Errorf("imported %q", r.images.imported)
	}
	args := r.calls(t)[0]
	for _, want := range []string{"--mode=unshare", "--variant=minbase", "chromium", "fonts-noto-cjk",
		"trixie - deb [signed-by=", "http://deb.debian.org/debian trixie main", "http://deb.debian.org/debian-security trixie-security main"} {
		if !strings.Contains(args, want) {
			t.Errorf("mmdebstrap was not given %q: %s", want, args)
		}
	}
	var done, total int64
	for _, e := range r.events {
		if e.Total == 6 { // its lines may be read when its archive has begun, in the next step
			done, total = e.Done, e.Total
		}
	}
	if done != 3 || total != 6 {
		t.Errorf("progress of the installation ended at %d of %d", done, total)
	}
	b := r.images.builds[0]
	if b.Args["BASE"] != baseImage || b.Pull || b.Tag != "localhost/handler/toolbox:default" || !b.Network {
		t.Errorf("build %+v", b)
	}
	for _, name := range []string{"Containerfile", "packages", "install-packages", "chromium-policy.json", "node22/package-lock.json"} {
		if r.images.contexts[0][name] == "" {
			t.Errorf("the context has no %s", name)
		}
	}
	entry, err := r.Status(ctx, sandbox.KindToolbox, "")
	if err != nil || entry.State != Fresh {
		t.Errorf("%+v, %v", entry, err)
	}

	// Again: the base is kept. If stale: nothing at all happens. With no cache: everything anew.
	for _, tt := range []struct {
		o            BuildOptions
		bases, build int
	}{{BuildOptions{}, 1, 2}, {BuildOptions{IfStale: true}, 1, 2}, {BuildOptions{NoCache: true}, 2, 3}} {
		if err := r.BuildToolbox(ctx, "", tt.o, nil); err != nil {
			t.Fatal(err)
		}
		if got := len(r.calls(t)); got != tt.bases || len(r.images.builds) != tt.build {
			t.Errorf("%+v: mmdebstrap ran %d times, %d images were built", tt.o, got, len(r.images.builds))
		}
	}
}

func TestMirrorWithoutUpdatesIsDoneWithout(t *testing.T) {
	r := newRoom(t, `case "$*" in *trixie-updates*) echo "E: The repository 'http://m/debian trixie-updates Release' does not have a Release file." >&2; exit 25;; esac`+"\n"+goodBase, "")
	if err := r.BuildToolbox(t.Context(), "", BuildOptions{Mirror: "http://m.test/debian/"}, r.event); err != nil {
		t.Fatal(err)
	}
	calls := r.calls(t)
	if len(calls) != 2 || strings.Contains(calls[1], "trixie-updates") || !strings.Contains(calls[1], "http://m.test/debian-security trixie-security") {
		t.Errorf("calls: %q", calls)
	}
}

func TestBaseFailures(t *testing.T) {
	for _, tt := range []struct{ name, script, says, hint string }{
		{"no release", `echo "E: The repository 'http://m/debian trixie Release' does not have a Release file." >&2; exit 25`, "does not have a Release file", "--mirror"},
		{"not found", `echo "E: Failed to fetch http://m/x.deb  404  Not Found [IP: 1]" >&2; exit 25`, "404", "--mirror"},
		{"wrong path", `echo "E: Failed to fetch http://m/dists/trixie/InRelease  400  Bad Request [IP: 1]
E: The repository 'http://m trixie InRelease' is not signed." >&2; exit 25`, "400", "name another one with --mirror"},
		{"old keys", `echo "W: GPG error: http://m trixie InRelease: NO_PUBKEY 1" >&2; exit 25`, "NO_PUBKEY", "debian-archive-keyring"},
		{"no network", `echo "W: Failed to fetch http://m/InRelease  Could not resolve 'm'" >&2; exit 25`, "Could not resolve", "--mirror URL"},
		{"full disk", `echo "dpkg: error: write: No space left on device" | tr N n >&2; exit 25`, "no space left", "disk is full"},
		{"cut off", `printf half; echo "tar: died" >&2; exit 2`, "exit status 2", ""},
		{"nothing", `exit 0`, "wrote nothing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t, tt.script, "")
			err := r.BuildToolbox(t.Context(), "", BuildOptions{}, r.event)
			var failed *BuildError
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(failed.Hint, tt.hint) {
				t.Fatalf("got %v, hint %q", err, failed.Hint)
			}
			if len(r.images.byTag) != 0 {
				t.Errorf("an image was made: %v", r.images.byTag)
			}
			r.steps(t)
		})
	}
}

func TestCancelEndsTheInstallation(t *testing.T) {
	r := newRoom(t, "trap 'echo gone >>\"$0.ended\"; exit 1' TERM\nsleep 60 &\nuntil grep -q sleep /proc/$!/comm; do :; done\necho up >&2\nwait\n", "")
	ctx, cancel := context.WithCancel(t.Context())
	started := time.Now()
	err := r.BuildToolbox(ctx, "", BuildOptions{}, func(e Event) {
		if e.Line == "up" {
			cancel()
		}
	})
	if err == nil || time.Since(started) > 15*time.Second {
		t.Fatalf("%v after %s", err, time.Since(started))
	}
	if _, err := os.Stat(r.opts.MMDebstrap + ".ended"); err != nil {
		t.Errorf("mmdebstrap was not asked to clean up: %v", err)
	}
}

func TestBaseFromRegistry(t *testing.T) {
	missing := func(o *Options) { o.MMDebstrap = "/nowhere/mmdebstrap" }
	for name, o := range map[string]BuildOptions{"asked for": {Base: BaseRegistry}, "without mmdebstrap": {}} {
		r := newRoom(t, "exit 1", "", missing)
		if err := r.BuildToolbox(t.Context(), "", o, nil); err != nil {
			t.Fatal(name, err)
		}
		if b := r.images.builds[0]; b.Args["BASE"] != "docker.io/library/debian:trixie-slim" || !b.Pull {
			t.Errorf("%s: %+v", name, b)
		}
	}
	r := newRoom(t, "exit 1", "", missing)
	var failed *BuildError
	if err := r.BuildToolbox(t.Context(), "", BuildOptions{Base: BaseMMDebstrap}, nil); !errors.As(err, &failed) || !strings.Contains(failed.Hint, "apt-get install mmdebstrap") {
		t.Errorf("got %v", err)
	}
}

func TestNamedToolbox(t *testing.T) {
	r := newRoom(t, goodBase, "")
	ctx := t.Context()
	var missing *NotBuiltError
	if err := r.BuildToolbox(ctx, "rust", BuildOptions{Packages: []string{"cargo"}}, nil); !errors.As(err, &missing) || missing.Hint != "handler toolbox build" {
		t.Fatalf("got %v", err)
	}
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "Containerfile")
	if err := os.WriteFile(file, []byte("FROM docker.io/alpine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		name string
		o    BuildOptions
		want string
	}{
		"nothing":      {"new", BuildOptions{}, "was never built"},
		"both":         {"new", BuildOptions{Packages: []string{"a1"}, Containerfile: file}, "not both"},
		"foreign base": {"new", BuildOptions{Containerfile: file}, "FROM ${TOOLBOX}"},
		"a flag":       {"new", BuildOptions{Packages: []string{"-o=x"}}, "not the name of a Debian package"},
		"a command":    {"new", BuildOptions{Packages: []string{"a;reboot"}}, "not the name of a Debian package"},
		"a path":       {"../x", BuildOptions{Packages: []string{"a1"}}, "is not a name"},
		"the default":  {"default", BuildOptions{Packages: []string{"a1"}}, "takes no packages"},
	} {
		if err := r.BuildToolbox(ctx, tt.name, tt.o, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	if err := r.BuildToolbox(ctx, "rust", BuildOptions{Packages: []string{"cargo", "rustc"}}, nil); err != nil {
		t.Fatal(err)
	}
	text := r.images.contexts[len(r.images.contexts)-1]["Containerfile"]
	if !strings.HasPrefix(text, "ARG TOOLBOX\nFROM ${TOOLBOX}\n") || !strings.Contains(text, "cargo \\\n      rustc \\\n") {
		t.Errorf("Containerfile:\n%s", text)
	}
	// By its name alone it is built from the same recipe again.
	if err := r.BuildToolbox(ctx, "rust", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if again := r.images.contexts[len(r.images.contexts)-1]["Containerfile"]; again != text {
		t.Errorf("the second build has another recipe:\n%s", again)
	}
	list, err := r.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range list {
		got[e.Kind+" "+e.Name] = e.State
	}
	want := map[string]string{"toolbox default": Fresh, "toolbox rust": Fresh, "addon playwright": Missing, "harness demo": Missing, "harness claude-code": Missing}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := r.Remove(ctx, sandbox.KindToolbox, "rust"); err != nil {
		t.Fatal(err)
	}
	if err := r.BuildToolbox(ctx, "rust", BuildOptions{}, nil); err == nil {
		t.Error("the recipe outlived the toolbox")
	}
}

func TestBuildAddonAndHarness(t *testing.T) {
	r := newRoom(t, goodBase, "")
	ctx := t.Context()
	var missing *NotBuiltError
	if err := r.BuildAddon(ctx, "playwright", BuildOptions{}, nil); !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.BuildAddon(ctx, "playwright", BuildOptions{NPMRegistry: "http://npm.test/"}, r.event); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"building the addon", "checking addon playwright"}, r.steps(t)); diff != "" {
		t.Error(diff)
	}
	build, files := r.images.builds[1], r.images.contexts[1]
	if !strings.HasSuffix(files["Containerfile"], "\nFROM scratch\nCOPY --from=build /opt/handler/addons/playwright/ /\n") {
		t.Errorf("Containerfile:\n%s", files["Containerfile"])
	}
	if build.Args["TOOLBOX"] == "" || build.Args["npm_config_registry"] != "http://npm.test/" ||
		!regexp.MustCompile(`(?m)^FROM \$\{TOOLBOX\} AS build\nARG .* npm_config_registry$`).MatchString(files["Containerfile"]) {
		t.Errorf("build %+v", build)
	}
	spec := r.driver.specs[len(r.driver.specs)-1]
	if diff := cmp.Diff([]string{"/opt/handler/addons/playwright/bin/playwright-mcp-check"}, spec.Command); diff != "" {
		t.Error(diff)
	}
	if spec.Env["HANDLER_SETTING_VIEWPORT"] != "1280x720" || len(spec.Images) != 1 || spec.Guest != "/guest" {
		t.Errorf("spec %+v", spec)
	}
	if err := r.BuildHarness(ctx, "demo", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if r.images.contexts[2]["handler-demo-agent"] != "binary" {
		t.Errorf("context: %v", r.images.contexts[2])
	}
	// Fresh, until the binary changes; then only it is built.
	for _, want := range []string{Fresh, Stale} {
		e, err := r.Status(ctx, sandbox.KindHarness, "demo")
		if err != nil || e.State != want {
			t.Errorf("%+v, %v, want %s", e, err, want)
		}
		if err := os.WriteFile(r.opts.HarnessFiles["demo"]["handler-demo-agent"], []byte("newer"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := len(r.images.builds)
	for _, build := range []func() error{
		func() error { return r.BuildAddon(ctx, "playwright", BuildOptions{IfStale: true}, nil) },
		func() error { return r.BuildHarness(ctx, "demo", BuildOptions{IfStale: true}, nil) },
	} {
		if err := build(); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.images.builds) != before+1 {
		t.Errorf("%d images were built", len(r.images.builds)-before)
	}
}

func TestFailedBuildShowsItsEnd(t *testing.T) {
	r := newRoom(t, goodBase, "")
	ctx := t.Context()
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	r.images.buildErr = errors.New("exit status 1")
	r.images.output = strings.Repeat("noise\n", 50) + "npm error code E404\nnpm error 404 Not Found - GET http://npm.test/x\n"
	err := r.BuildAddon(ctx, "playwright", BuildOptions{}, nil)
	var failed *BuildError
	if !errors.As(err, &failed) || !strings.Contains(failed.Hint, "--npm-registry") || len(failed.Lines) != keepLines {
		t.Fatalf("got %+v", failed)
	}
	if !strings.HasSuffix(err.Error(), "npm error 404 Not Found - GET http://npm.test/x") {
		t.Errorf("got %v", err)
	}
}

func TestFailedCheckGivesAdvice(t *testing.T) {
	r := newRoom(t, goodBase, "")
	ctx := t.Context()
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	r.driver.says = func(spec sandbox.Spec) (string, string, int) {
		if strings.HasSuffix(spec.Command[0], "-check") {
			return "ok    initialize\nFAIL  No usable sandbox!\n", "a word on stderr\n", 1
		}
		return "", "", 0
	}
	err := r.BuildAddon(ctx, "playwright", BuildOptions{}, nil)
	var failed *CheckError
	if !errors.As(err, &failed) || !strings.Contains(failed.Hint, "user namespaces") {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"ended with code 1", "FAIL  No usable sandbox!", "a word on stderr"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	// A rebuild of the toolbox runs the check of what is built, and says that it fails; the toolbox is there.
	if err := r.BuildToolbox(ctx, "", BuildOptions{}, nil); !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	if e, err := r.Status(ctx, sandbox.KindToolbox, ""); err != nil || e.State != Fresh {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestCheckThatHangsIsEnded(t *testing.T) {
	r := newRoom(t, goodBase, "")
	r.images.put(sandbox.ToolboxImage(""), nil)
	r.driver.hang = true
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("the test's patience is over"))
	defer cancel()
	err := r.CheckToolbox(ctx, "", nil)
	var failed *CheckError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "patience") {
		t.Errorf("got %v", err)
	}
}

// The authorities that a build trusts reach every step and no image.
func TestVariablesAreDeclaredInEveryStage(t *testing.T) {
	w := &workspace{dir: t.TempDir(), env: map[string]string{"A": "1", "B": "2"}}
	if err := os.Mkdir(w.context(), 0o755); err != nil {
		t.Fatal(err)
	}
	in := "ARG TOOLBOX\nFROM ${TOOLBOX} AS one\r\nRUN x <<E\nfrom os import path\nE\n  from --platform=linux/amd64 debian as two\nFROM one\nFROM scratch\nCOPY a b\n"
	want := "ARG TOOLBOX\nFROM ${TOOLBOX} AS one\nARG A B\nRUN x <<E\nfrom os import path\nE\n  from --platform=linux/amd64 debian as two\nARG A B\nFROM one\nARG A B\nFROM scratch\nCOPY a b\n"
	name := filepath.Join(w.context(), "Containerfile")
	if err := os.WriteFile(name, []byte(in), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.declare("Containerfile"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}
