package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/agents"
)

// Bounds of reading.
const (
	// CommandTimeout is how long pass, or a command, may take: time to type a passphrase into what it opens.
	CommandTimeout = 30 * time.Second
	// ServiceTimeout is how long the secret service may take: it is never waited for a person there.
	ServiceTimeout = 10 * time.Second

	maxStderr = 4 << 10 // of pass, to know what went wrong
	maxItems  = 2000    // of the secret service, when one is looked for by its label
)

// Options are what a Reader knows of the person's session. All may be empty; what needs them then says so.
type Options struct {
	Home          string   // absolute
	Path          string   // where programs are looked for, as PATH
	Env           []string // NAME=VALUE for pass and commands, besides HOME and PATH: nothing else reaches them
	PasswordStore string   // the folder of pass; "" for ~/.password-store
	SessionBus    string   // the address of the person's D-Bus
	Credentials   string   // $CREDENTIALS_DIRECTORY: where systemd put the credentials of handlerd.service
}

// A Reader reads secrets from where they are, each time anew: it keeps none. It may be used concurrently.
type Reader struct {
	opts    Options
	timeout time.Duration // CommandTimeout; less in tests
}

// NewReader makes a Reader. It looks at nothing yet.
func NewReader(opts Options) *Reader { return &Reader{opts, CommandTimeout} }

// An Error says why a source gives no secret, and what to do. It never holds a part of the value.
type Error struct {
	Source string // "pass:api/key"
	Reason string // "is not in the password store"
	Remedy string // "pass insert api/key"
	Err    error  // the cause, for errors.Is; may be nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("the secret %s %s — %s", e.Source, e.Reason, e.Remedy)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Read reads the whole of a secret, 1 to MaxBytes bytes, for a file. The error is an *Error or a *FileError.
func (r *Reader) Read(ctx context.Context, source agents.Secret) (Value, error) {
	switch source.Kind() {
	case agents.SecretFile:
		return Read(source.File)
	case agents.SecretCredential:
		return r.credential(source)
	case agents.SecretPass:
		return r.pass(ctx, source)
	case agents.SecretService:
		return r.service(ctx, source)
	case agents.SecretCommand:
		return r.command(ctx, source)
	}
	return Value{}, &Error{Source: "without a source", Reason: "names nothing", Remedy: "give it a file, pass, secret_service, credential or command"}
}

// Key reads a secret that is a key: one line. Of an entry of pass it is the first line, since further ones are notes
// by convention; of anything else it is the whole, without a line ending at its end.
func (r *Reader) Key(ctx context.Context, source agents.Secret) (Value, error) {
	v, err := r.Read(ctx, source)
	if err != nil {
		return Value{}, err
	}
	text := v.TrimNewline().Reveal()
	if source.Kind() == agents.SecretPass {
		text, _, _ = strings.Cut(text, "\n")
		text = strings.TrimSuffix(text, "\r")
	}
	switch {
	case text == "":
		return Value{}, &Error{Source: source.String(), Reason: "has an empty first line", Remedy: "put the key there"}
	case strings.ContainsAny(text, "\r\n\x00"):
		return Value{}, &Error{Source: source.String(), Reason: "has more than one line, and a key is one", Remedy: "take out what is not the key"}
	}
	return New(text), nil
}

// Probe tells whether a secret can most likely be read, without asking anybody for a passphrase and without running a
// command: of pass that the entry is there, of a command that the program is. The error is as that of Read.
func (r *Reader) Probe(ctx context.Context, source agents.Secret) error {
	switch source.Kind() {
	case agents.SecretPass:
		_, err := r.entry(source)
		return err
	case agents.SecretCommand:
		_, err := r.program(source, source.Command[0])
		return err
	case agents.SecretService:
		return r.probeService(ctx, source)
	}
	_, err := r.Read(ctx, source)
	return err
}

// credential reads what systemd put into the unit's own folder. systemd vouches for its rights: the files belong to us
// or to root, and an access list may let us read what the mode alone does not show.
func (r *Reader) credential(source agents.Secret) (Value, error) {
	fail := func(err error, reason, remedy string) (Value, error) {
		return Value{}, &Error{source.String(), reason, remedy, err}
	}
	give := fmt.Sprintf("systemctl --user edit handlerd.service, with [Service] LoadCredential=%s:/path (or LoadCredentialEncrypted=), then: systemctl --user restart handlerd.service", source.Credential)
	if r.opts.Credentials == "" {
		return fail(nil, "cannot be had: handlerd was not started by systemd with credentials", give)
	}
	path := filepath.Join(r.opts.Credentials, source.Credential)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return fail(err, "is not among the credentials of handlerd.service", give)
	} else if err != nil {
		return fail(err, "cannot be opened: "+cause(err), give)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err, "cannot be looked at: "+cause(err), "try again")
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fail(nil, "is not a regular file", give)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0, st.Mode&0o007 != 0, st.Uid != 0 && st.Mode&0o070 != 0:
		return fail(nil, "can be read by others", give)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return fail(err, "cannot be read: "+cause(err), "try again")
	}
	return r.value(source, data)
}

// value makes a Value of what a source gave, within its bounds.
func (r *Reader) value(source agents.Secret, data []byte) (Value, error) {
	switch {
	case len(data) == 0:
		return Value{}, &Error{Source: source.String(), Reason: "is empty", Remedy: "put the secret there"}
	case len(data) > MaxBytes:
		return Value{}, &Error{Source: source.String(), Reason: fmt.Sprintf("has more than %d MiB", MaxBytes>>20), Remedy: "is it the right one?"}
	}
	return New(string(data)), nil
}
