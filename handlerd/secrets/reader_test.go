package secrets

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/agents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const path = "/usr/local/bin:/usr/bin:/bin"

// refused wants an error that says want, has a remedy, and holds no canary.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Remedy == "" {
		t.Errorf("got %v, want it to say %q", err, want)
	}
	if err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("a secret is shown: %v", err)
	}
}

func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCommand(t *testing.T) {
	home := t.TempDir()
	r := NewReader(Options{Home: home, Path: path, Env: []string{"GPG_TTY=/dev/pts/9"}})
	read := func(argv ...string) (Value, error) {
		return r.Read(t.Context(), agents.Secret{Command: argv})
	}
	v, err := read("printf", "%s\n", canary)
	if err != nil || v.Reveal() != canary+"\n" {
		t.Errorf("%q, %v", v.Reveal(), err)
	}
	// Nothing but what is listed is in its environment, no terminal, no input.
	t.Setenv("HANDLER_TEST_LEAK", "1")
	v, err = read(script(t, `env | sort; pwd; wc -c; (: </dev/tty) 2>/dev/null && echo terminal; exit 0`))
	if want := "GPG_TTY=/dev/pts/9\nHOME=" + home + "\nPATH=" + path + "\nPWD=/\n/\n0\n"; err != nil || v.Reveal() != want {
		t.Errorf("%q, %v, want %q", v.Reveal(), err, want)
	}
	for name, tt := range map[string]struct {
		argv []string
		want string
	}{
		"exit":      {[]string{script(t, "echo "+canary+"; echo "+canary+" >&2; exit 3")}, "exit code 3"},
		"signal":    {[]string{script(t, "kill -9 $$")}, "ended by a signal"},
		"no output": {[]string{"true"}, "is empty"},
		"missing":   {[]string{"handler-no-such-tool"}, "no program handler-no-such-tool"},
		"folder":    {[]string{"/usr/bin"}, "no program /usr/bin"},
		"no shell":  {[]string{"echo x; echo y"}, "no program"},
		"too much":  {[]string{"head", "-c", "2000000", "/dev/zero"}, "more than 1 MiB"},
		"endless":   {[]string{"yes", canary}, "more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(tt.argv...)
			refused(t, err, tt.want)
		})
	}
}

// TestCommandEnds: a command that does not end is ended, with what it started, and waited for no longer than it may.
func TestCommandEnds(t *testing.T) {
	r := NewReader(Options{Home: t.TempDir(), Path: path})
	r.timeout = 200 * time.Millisecond
	pids := filepath.Join(t.TempDir(), "pids")
	_, err := r.Read(t.Context(), agents.Secret{Command: []string{script(t, "echo $$ >"+pids+"; sleep 1000 & echo $! >>"+pids+"; wait")}})
	refused(t, err, "did not end within")
	data, _ := os.ReadFile(pids)
	found := strings.Fields(string(data))
	if len(found) != 2 {
		t.Fatalf("%q", data)
	}
	for _, pid := range found {
		gone := func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		}
		for end := time.Now().Add(5 * time.Second); !gone(); {
			if time.Now().After(end) {
				t.Fatalf("process %s lives on", pid)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Read(ctx, agents.Secret{Command: []string{"sleep", "1000"}})
	refused(t, err, "not waited for")
	// One that leaves a child behind which keeps the output open is not waited for either.
	r.timeout = 20 * time.Second
	start := time.Now()
	_, err = r.Read(t.Context(), agents.Secret{Command: []string{script(t, "echo x; setsid sleep 4 &")}})
	refused(t, err, "keeps the output open")
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestCredential(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"key": 0o400, "open": 0o444, "group": 0o440} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(canary), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("key", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "dir"), 0o700), os.WriteFile(filepath.Join(dir, "none"), nil, 0o400)); err != nil {
		t.Fatal(err)
	}
	r := NewReader(Options{Credentials: dir})
	if v, err := r.Key(t.Context(), agents.Secret{Credential: "key"}); err != nil || v.Reveal() != canary {
		t.Errorf("%v, %v", v, err)
	}
	wants := map[string]string{"open": "read by others", "gone": "not among the credentials", "link": "cannot be opened", "dir": "regular file", "none": "is empty"}
	if os.Geteuid() != 0 { // root's files may be the group's: systemd gives them by an access list
		wants["group"] = "read by others"
	}
	for name, want := range wants {
		_, err := r.Read(t.Context(), agents.Secret{Credential: name})
		refused(t, err, want)
	}
	_, err := NewReader(Options{}).Read(t.Context(), agents.Secret{Credential: "key"})
	refused(t, err, "not started by systemd")
	refused(t, err, "LoadCredential=key:")
}

// installed wants the real programs; hack/prepare test installs them.
func installed(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: hack/prepare test installs it", p)
		}
	}
}

// store makes a real password store with a real key that has a passphrase, or none.
func store(t *testing.T, passphrase string) (*Reader, func(entry, text string)) {
	t.Helper()
	installed(t, "pass", "gpg")
	home, err := os.MkdirTemp("", "g") // gpg-agent's socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "PATH=" + path, "GNUPGHOME=" + home + "/gnupg", "PASSWORD_STORE_DIR=" + home + "/store"}
	run := func(stdin string, argv ...string) {
		t.Helper()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stdin = env, strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		run("", "gpgconf", "--kill", "all")
		os.RemoveAll(home)
	})
	if err := os.Mkdir(home+"/gnupg", 0o700); err != nil {
		t.Fatal(err)
	}
	run("", "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", passphrase, "--quick-generate-key", "ana@example.org", "future-default", "default", "never")
	run("", "pass", "init", "ana@example.org")
	run("", "gpgconf", "--kill", "all") // it may have kept the passphrase
	r := NewReader(Options{Home: home, Path: path, Env: env[2:], PasswordStore: home + "/store"})
	return r, func(entry, text string) { run(text, "pass", "insert", "--multiline", entry) }
}

func TestPass(t *testing.T) {
	r, insert := store(t, "")
	insert("api/key", canary+"\nuser: ana\n")
	insert("state", `{"cookies":[]}`+"\n")
	if v, err := r.Read(t.Context(), agents.Secret{Pass: "api/key"}); err != nil || v.Reveal() != canary+"\nuser: ana\n" {
		t.Errorf("the whole: %q, %v", v.Reveal(), err)
	}
	if v, err := r.Key(t.Context(), agents.Secret{Pass: "api/key"}); err != nil || v.Reveal() != canary {
		t.Errorf("a key: %q, %v", v.Reveal(), err)
	}
	if err := r.Probe(t.Context(), agents.Secret{Pass: "api/key"}); err != nil {
		t.Error(err)
	}
	for entry, want := range map[string]string{"api/other": "pass insert api/other", "api": "not in the password store"} {
		_, err := r.Read(t.Context(), agents.Secret{Pass: entry})
		refused(t, err, want)
		refused(t, r.Probe(t.Context(), agents.Secret{Pass: entry}), want)
	}
	none := NewReader(Options{Home: t.TempDir(), Path: "/nowhere"})
	_, err := none.Read(t.Context(), agents.Secret{Pass: "x"})
	refused(t, err, "no program pass")
}

// TestPassLocked: with a passphrase that nobody can be asked for, the error says what to do, in time.
func TestPassLocked(t *testing.T) {
	r, insert := store(t, "open sesame")
	insert("key", canary)
	start := time.Now()
	_, err := r.Read(t.Context(), agents.Secret{Pass: "key"})
	refused(t, err, "was not decrypted")
	refused(t, err, "gpg-agent keeps the passphrase")
	if took := time.Since(start); took > CommandTimeout {
		t.Errorf("it took %v", took)
	}
}

func TestKeyIsOneLine(t *testing.T) {
	dir := t.TempDir()
	r := NewReader(Options{Path: path})
	file := func(text string) agents.Secret {
		name := filepath.Join(dir, "key")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return agents.Secret{File: name}
	}
	for text, want := range map[string]string{canary: canary, canary + "\n": canary, canary + "\r\n": canary} {
		if v, err := r.Key(t.Context(), file(text)); err != nil || v.Reveal() != want {
			t.Errorf("%q: %q, %v", text, v.Reveal(), err)
		}
	}
	for text, want := range map[string]string{"\n": "empty", canary + "\n\n": "more than one line", canary + "\nx": "more than one line", "a\x00b": "more than one line"} {
		_, err := r.Key(t.Context(), file(text))
		refused(t, err, want)
	}
	_, err := r.Key(t.Context(), agents.Secret{})
	refused(t, err, "names nothing")
}

// TestErrorsHoldNothing: an error of any source shows no part of what the source gave.
func TestErrorsHoldNothing(t *testing.T) {
	var log bytes.Buffer
	r := NewReader(Options{Home: t.TempDir(), Path: path})
	for _, text := range []string{"echo " + canary + " >&2; exit 1", "echo " + canary + "; kill -9 $$", "yes " + canary} {
		_, err := r.Read(t.Context(), agents.Secret{Command: []string{script(t, text)}})
		for e := err; e != nil; e = errors.Unwrap(e) {
			log.WriteString(e.Error())
			var exit *exec.ExitError
			if errors.As(e, &exit) {
				log.Write(exit.Stderr)
			}
		}
	}
	if log.Len() == 0 || strings.Contains(log.String(), canary) {
		t.Errorf("%s", log.String())
	}
}
