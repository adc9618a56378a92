package secrets

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/handlerd/handler/agents"
)

// A session is a private bus with a real keyring on it.
type session struct {
	t   *testing.T
	bus string
	env []string
}

// newSession starts a bus.
func newSession(t *testing.T) *session {
	t.Helper()
	installed(t, "dbus-daemon")
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &session{t: t, env: []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "PATH=" + path, "XDG_DATA_HOME=" + dir + "/data"}}
	// Without folders of services: it starts nothing by itself.
	conf := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(conf, []byte(`<busconfig><type>session</type><listen>unix:path=`+filepath.Join(dir, "bus")+`</listen><policy context="default">
		<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+conf, "--nofork", "--nopidfile", "--print-address")
	cmd.Env = s.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.spawn(cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.bus = strings.TrimSpace(line)
	s.env = append(s.env, "DBUS_SESSION_BUS_ADDRESS="+s.bus)
	return s
}

func (s *session) spawn(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// keyring starts gnome-keyring; with a password its login keyring is open.
func (s *session) keyring(password string) {
	s.t.Helper()
	installed(s.t, "gnome-keyring-daemon", "secret-tool")
	argv := []string{"--foreground", "--components=secrets"}
	if password != "" {
		argv = append(argv, "--unlock")
	}
	cmd := exec.Command("gnome-keyring-daemon", argv...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(password)
	s.spawn(cmd)
	s.await(serviceName)
}

// await waits until a name is on the bus.
func (s *session) await(name string) {
	s.t.Helper()
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name)); err != nil {
		s.t.Fatal(err)
	}
	limit := time.After(20 * time.Second)
	for {
		var has bool
		if err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&has); err != nil {
			s.t.Fatal(err)
		}
		if has {
			return
		}
		select {
		case <-signals: // of any name: asked again
		case <-limit:
			s.t.Fatalf("%s does not come on the bus", name)
		}
	}
}

func (s *session) tool(stdin string, argv ...string) {
	s.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

func (s *session) reader() *Reader { return NewReader(Options{SessionBus: s.bus}) }

func attributes(pairs ...string) agents.Secret {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return agents.Secret{SecretService: m}
}

// TestSecretService reads from a real keyring, over an encrypted session.
func TestSecretService(t *testing.T) {
	s := newSession(t)
	s.keyring("open sesame")
	s.tool(canary, "secret-tool", "store", "--label=Anthropic key", "service", "anthropic", "user", "ana")
	s.tool("x", "secret-tool", "store", "--label=twice", "service", "twice", "user", "ana")
	s.tool("y", "secret-tool", "store", "--label=twice", "service", "twice", "user", "ben")
	r := s.reader()
	for name, source := range map[string]agents.Secret{
		"attributes": attributes("service", "anthropic", "user", "ana"),
		"fewer":      attributes("service", "anthropic"),
		"label":      {SecretServiceLabel: "Anthropic key"},
	} {
		if v, err := r.Key(t.Context(), source); err != nil || v.Reveal() != canary {
			t.Errorf("%s: %q, %v", name, v.Reveal(), err)
		}
		if err := r.Probe(t.Context(), source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, source := range map[string]agents.Secret{
		"is in no keyring":      attributes("service", "none"),
		"--label='…' service":   attributes("service", "none"),
		"not one item":          attributes("service", "twice"),
		"not one item but":      {SecretServiceLabel: "twice"},
		"compare the label":     {SecretServiceLabel: "none"},
		"search --all user ana": attributes("user", "ana"),
	} {
		_, err := r.Read(t.Context(), source)
		refused(t, err, want)
		refused(t, r.Probe(t.Context(), source), want)
	}
}

// TestSecretServiceLocked: a keyring that is locked is told of, with the command that unlocks it, and nobody is asked.
func TestSecretServiceLocked(t *testing.T) {
	s := newSession(t)
	s.keyring("open sesame")
	s.tool(canary, "secret-tool", "store", "--label=k", "service", "anthropic", "user", "an a")
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Object(serviceName, servicePath).Call(serviceType+"Lock", 0, []dbus.ObjectPath{servicePath + "/collection/login"}).Err; err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = s.reader().Read(t.Context(), attributes("service", "anthropic", "user", "an a"))
	refused(t, err, "keyring that is locked")
	refused(t, err, "secret-tool lookup service anthropic user 'an a' >/dev/null")
	if took := time.Since(start); took > ServiceTimeout {
		t.Errorf("it took %v", took)
	}
}

func TestNoSecretService(t *testing.T) {
	for bus, want := range map[string]string{"": "no D-Bus", "unixexec:path=/bin/sh": "no D-Bus", "tcp:host=127.0.0.1,port=1": "no D-Bus", "unix:path=/nowhere": "cannot be spoken to"} {
		_, err := NewReader(Options{SessionBus: bus}).Read(t.Context(), attributes("a", "b"))
		refused(t, err, want)
	}
	_, err := newSession(t).reader().Read(t.Context(), attributes("a", "b"))
	refused(t, err, "nothing on your D-Bus keeps secrets")
}

// A keeper is a secret service that does what a test says.
type keeper struct {
	plain bool          // it knows no encryption
	hang  chan struct{} // it does not answer before this is closed
}

func (k *keeper) SearchItems(map[string]string) ([]dbus.ObjectPath, []dbus.ObjectPath, *dbus.Error) {
	if k.hang != nil {
		<-k.hang
	}
	return []dbus.ObjectPath{"/item"}, nil, nil
}

func (k *keeper) OpenSession(algorithm string, _ dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	if k.plain && algorithm != "plain" {
		return dbus.MakeVariant(""), "/", dbus.NewError("org.freedesktop.DBus.Error.NotSupported", []any{canary})
	}
	if !k.plain {
		return dbus.MakeVariant([]byte{1}), "/session", nil // a public key that agrees on nothing secret
	}
	return dbus.MakeVariant(""), "/session", nil
}

func (k *keeper) GetSecret(dbus.ObjectPath) (serviceSecret, *dbus.Error) {
	return serviceSecret{Session: "/session", Value: []byte(canary)}, nil
}

func (s *session) keep(k *keeper) {
	s.t.Helper()
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	for path, name := range map[dbus.ObjectPath]string{servicePath: strings.TrimSuffix(serviceType, "."), "/item": strings.TrimSuffix(itemType, ".")} {
		if err := conn.Export(k, path, name); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := conn.RequestName(serviceName, dbus.NameFlagDoNotQueue); err != nil {
		s.t.Fatal(err)
	}
}

// TestOddKeepers: one that knows no encryption is read plainly; one that cheats in it, or never answers, is not.
func TestOddKeepers(t *testing.T) {
	plain := newSession(t)
	plain.keep(&keeper{plain: true})
	if v, err := plain.reader().Read(t.Context(), attributes("a", "b")); err != nil || v.Reveal() != canary {
		t.Errorf("%q, %v", v.Reveal(), err)
	}
	cheat := newSession(t)
	cheat.keep(&keeper{})
	_, err := cheat.reader().Read(t.Context(), attributes("a", "b"))
	refused(t, err, "cannot be spoken to")
	silent := newSession(t)
	hang := make(chan struct{})
	silent.keep(&keeper{hang: hang})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = silent.reader().Read(ctx, attributes("a", "b"))
	close(hang)
	refused(t, err, "did not answer")
}

// TestExchange: two ends agree, and what is no key or no text of the session is refused.
func TestExchange(t *testing.T) {
	a, publicA, err := newExchange()
	if err != nil {
		t.Fatal(err)
	}
	b, publicB, err := newExchange()
	if err != nil {
		t.Fatal(err)
	}
	one, err1 := agree(a, publicB)
	two, err2 := agree(b, publicA)
	if err1 != nil || err2 != nil || string(one) != string(two) || len(one) != aes.BlockSize {
		t.Fatalf("%x, %x, %v, %v", one, two, err1, err2)
	}
	for _, public := range [][]byte{nil, {0}, {1}, group().Bytes(), make([]byte, 129), append([]byte{1}, group().Bytes()...)} {
		if _, err := agree(a, public); err == nil {
			t.Errorf("agreed with %.8x", public)
		}
	}
	iv := make([]byte, aes.BlockSize)
	block, err := aes.NewCipher(one)
	if err != nil {
		t.Fatal(err)
	}
	seal := func(padded string) []byte {
		out := make([]byte, len(padded))
		cipher.NewCBCEncrypter(block, iv).CryptBlocks(out, []byte(padded))
		return out
	}
	if got, err := decrypt(one, iv, seal("hello"+strings.Repeat("\x0b", 11))); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	for name, text := range map[string][]byte{"nothing": nil, "half a block": make([]byte, 8), "no padding": seal(strings.Repeat("a", 16)), "zero padding": seal(strings.Repeat("\x00", 16)), "wrong padding": seal("abcdefghijklm\x01\x02\x03")} {
		if _, err := decrypt(one, iv, text); err == nil {
			t.Errorf("%s: decrypted", name)
		}
	}
	if _, err := decrypt(one, iv[:4], seal(strings.Repeat("\x10", 16))); err == nil {
		t.Error("a short iv")
	}
}
