package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/handlerd/handler/agents"
)

// The desktop's keyring, by the API that its keepers share (org.freedesktop.secrets: GNOME, KDE, KeePassXC).
const (
	serviceName = "org.freedesktop.secrets"
	servicePath = dbus.ObjectPath("/org/freedesktop/secrets")
	serviceType = "org.freedesktop.Secret.Service."
	itemType    = "org.freedesktop.Secret.Item."
	noPrompt    = dbus.ObjectPath("/")
)

// Why the service gives nothing.
var (
	errNoItem = errors.New("no item matches")
	errMany   = errors.New("several items match")
	errLocked = errors.New("its keyring is locked")
	errNoBus  = errors.New("there is no session bus")
)

// service reads the one item that the source means.
func (r *Reader) service(ctx context.Context, source agents.Secret) (Value, error) {
	var data []byte
	err := r.withService(ctx, func(s *secretService) error {
		item, err := s.find(source)
		if err == nil {
			data, err = s.read(item)
		}
		return err
	})
	if err != nil {
		return Value{}, serviceFault(source, err)
	}
	return r.value(source, data)
}

// probeService looks whether there is one item, and its keyring open.
func (r *Reader) probeService(ctx context.Context, source agents.Secret) error {
	err := r.withService(ctx, func(s *secretService) error {
		_, err := s.find(source)
		return err
	})
	if err != nil {
		return serviceFault(source, err)
	}
	return nil
}

// serviceFault says what is wrong and how to mend it.
func serviceFault(source agents.Secret, err error) error {
	e := &Error{Source: source.String(), Err: err}
	lookup := "secret-tool lookup"
	for _, name := range keys(source.SecretService) {
		lookup += " " + shellWord(name) + " " + shellWord(source.SecretService[name])
	}
	if source.SecretServiceLabel != "" {
		lookup = "open the keyring's own program (Seahorse, KWalletManager, KeePassXC)"
	}
	var call dbus.Error
	switch {
	case errors.Is(err, errNoItem):
		e.Reason, e.Remedy = "is in no keyring", "store it: secret-tool store --label='…' "+strings.TrimPrefix(lookup, "secret-tool lookup ")
		if source.SecretServiceLabel != "" {
			e.Remedy = "compare the label: " + lookup
		}
	case errors.Is(err, errMany):
		e.Reason, e.Remedy = "is not one item but several", "give more attributes: secret-tool search --all "+strings.TrimPrefix(lookup, "secret-tool lookup ")
		if source.SecretServiceLabel != "" {
			e.Remedy = "name it by secret_service = {…} with attributes that only it has"
		}
	case errors.Is(err, errLocked):
		e.Reason, e.Remedy = "is in a keyring that is locked", "unlock it: "+lookup+" >/dev/null"
		if source.SecretServiceLabel != "" {
			e.Remedy = "unlock it: " + lookup
		}
	case errors.Is(err, errNoBus):
		e.Reason, e.Remedy = "cannot be had: handlerd knows no D-Bus of your session", "log in with a session and restart handlerd: handler daemon stop"
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Remedy = fmt.Sprintf("cannot be had: the secret service did not answer within %v", ServiceTimeout), "see whether it asks you something; try: "+lookup+" >/dev/null"
	case errors.As(err, &call) && (strings.HasSuffix(call.Name, ".ServiceUnknown") || strings.Contains(call.Name, ".Spawn.") || strings.HasSuffix(call.Name, ".NameHasNoOwner")):
		e.Reason, e.Remedy = "cannot be had: nothing on your D-Bus keeps secrets", "start a keyring: gnome-keyring, KWallet or KeePassXC with its secret service switched on"
	case errors.As(err, &call):
		e.Reason, e.Remedy = "cannot be had: the secret service says "+call.Name, "try: "+lookup+" >/dev/null" // the name of its error; its text may be anything
	default:
		e.Reason, e.Remedy = "cannot be had: the secret service cannot be spoken to", "is D-Bus running? try: "+lookup+" >/dev/null"
	}
	return e
}

// shellWord quotes a word of a command that a person may type.
func shellWord(text string) string {
	if text != "" && strings.IndexFunc(text, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-:/@", c))
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// A secretService is a connection to the service, for one secret.
type secretService struct {
	ctx  context.Context
	conn *dbus.Conn
}

// withService connects to the service, within ServiceTimeout for all that do does.
func (r *Reader) withService(ctx context.Context, do func(*secretService) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, ServiceTimeout)
	defer cancel()
	address, err := unixAddress(r.opts.SessionBus)
	if err != nil {
		return err
	}
	// The connection ends with ctx, also while it is made.
	conn, err := dbus.Connect(address, dbus.WithContext(ctx), dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Geteuid()))))
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	defer conn.Close()
	if err := do(&secretService{ctx, conn}); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// unixAddress chooses the first address of a bus that is a unix socket: others would start programs or leave the
// machine.
func unixAddress(bus string) (string, error) {
	for _, address := range strings.Split(bus, ";") {
		if strings.HasPrefix(address, "unix:") {
			return address, nil
		}
	}
	return "", errNoBus
}

func (s *secretService) call(path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return s.conn.Object(serviceName, path).CallWithContext(s.ctx, method, 0, args...)
}

// find gives the one item that is meant, in an open keyring.
func (s *secretService) find(source agents.Secret) (dbus.ObjectPath, error) {
	attributes := source.SecretService
	if attributes == nil {
		attributes = map[string]string{}
	}
	var open, locked []dbus.ObjectPath
	if err := s.call(servicePath, serviceType+"SearchItems", attributes).Store(&open, &locked); err != nil {
		return "", err
	}
	if source.SecretServiceLabel != "" {
		var err error
		if open, err = s.labelled(open, source.SecretServiceLabel); err != nil {
			return "", err
		}
		if locked, err = s.labelled(locked, source.SecretServiceLabel); err != nil {
			return "", err
		}
	}
	switch {
	case len(open)+len(locked) == 0:
		return "", errNoItem
	case len(open)+len(locked) > 1:
		return "", errMany
	case len(open) == 1:
		return open[0], nil
	}
	return locked[0], s.unlock(locked[0])
}

// labelled keeps the items with a label.
func (s *secretService) labelled(items []dbus.ObjectPath, label string) ([]dbus.ObjectPath, error) {
	if len(items) > maxItems {
		return nil, errMany
	}
	var found []dbus.ObjectPath
	for _, item := range items {
		var value dbus.Variant
		if err := s.call(item, "org.freedesktop.DBus.Properties.Get", strings.TrimSuffix(itemType, "."), "Label").Store(&value); err != nil {
			return nil, err
		}
		if value.Value() == label {
			found = append(found, item)
		}
	}
	return found, nil
}

// unlock opens an item where that needs nobody; where it would need a prompt, that is given up at once.
func (s *secretService) unlock(item dbus.ObjectPath) error {
	var opened []dbus.ObjectPath
	var prompt dbus.ObjectPath
	if err := s.call(servicePath, serviceType+"Unlock", []dbus.ObjectPath{item}).Store(&opened, &prompt); err != nil {
		return err
	}
	if prompt != noPrompt {
		_ = s.call(prompt, "org.freedesktop.Secret.Prompt.Dismiss").Err // it was never shown
		return errLocked
	}
	if len(opened) != 1 || opened[0] != item {
		return errLocked
	}
	return nil
}

// A serviceSecret is the API's (oayays).
type serviceSecret struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

// read gets an item's value over a session that is encrypted, so that who watches the bus does not read it; where the
// keeper has no encryption, it is plain.
func (s *secretService) read(item dbus.ObjectPath) ([]byte, error) {
	session, key, err := s.open()
	if err != nil {
		return nil, err
	}
	defer s.call(session, "org.freedesktop.Secret.Session.Close")
	var secret serviceSecret
	if err := s.call(item, itemType+"GetSecret", session).Store(&secret); err != nil {
		var call dbus.Error
		if errors.As(err, &call) && strings.HasSuffix(call.Name, ".IsLocked") {
			return nil, errLocked
		}
		return nil, err
	}
	if key == nil {
		return secret.Value, nil
	}
	return decrypt(key, secret.Parameters, secret.Value)
}

// open agrees on a session; key is nil if it is plain.
func (s *secretService) open() (session dbus.ObjectPath, key []byte, err error) {
	private, public, err := newExchange()
	if err != nil {
		return "", nil, err
	}
	var answer dbus.Variant
	err = s.call(servicePath, serviceType+"OpenSession", exchangeName, dbus.MakeVariant(public)).Store(&answer, &session)
	if err == nil {
		theirs, _ := answer.Value().([]byte)
		key, err = agree(private, theirs)
		return session, key, err
	}
	var call dbus.Error
	if !errors.As(err, &call) || !strings.HasSuffix(call.Name, ".NotSupported") {
		return "", nil, err
	}
	err = s.call(servicePath, serviceType+"OpenSession", "plain", dbus.MakeVariant("")).Store(&answer, &session)
	return session, nil, err
}
