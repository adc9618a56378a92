package agents

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/configfile"
)

// Kinds of a Secret: where its value comes from.
const (
	SecretFile       = "file"
	SecretPass       = "pass"
	SecretService    = "secret-service"
	SecretCredential = "credential"
	SecretCommand    = "command"
)

// Bounds of a Secret.
const (
	maxSecretArgs  = 32
	maxSecretText  = 4000 // bytes of one argument, entry, attribute or label
	maxSecretAttrs = 16
)

// A Secret says where a value comes from, never what it is: exactly one of its fields is set (of the two of the secret
// service, one). It is read when it is used, by the daemon (handlerd/secrets).
type Secret struct {
	File string `toml:"file"` // a file of mode 0600 that the person owns
	Pass string `toml:"pass"` // an entry of the password store: pass show ENTRY
	// SecretService are attributes that exactly one item of the desktop's keyring has; SecretServiceLabel is its label.
	SecretService      map[string]string `toml:"secret_service"`
	SecretServiceLabel string            `toml:"secret_service_label"`
	Credential         string            `toml:"credential"` // a systemd credential of handlerd.service
	Command            []string          `toml:"command"`    // a program and its arguments, no shell; what it prints
}

// Kind gives which of the kinds it is; "" if it is none.
func (s Secret) Kind() string {
	switch {
	case s.File != "":
		return SecretFile
	case s.Pass != "":
		return SecretPass
	case len(s.SecretService) > 0 || s.SecretServiceLabel != "":
		return SecretService
	case s.Credential != "":
		return SecretCredential
	case len(s.Command) > 0:
		return SecretCommand
	}
	return ""
}

// String is the form that the command line takes: a path, or KIND:WHAT. Of a command it is the program alone, since an
// argument may say more than one wants to see.
func (s Secret) String() string {
	switch s.Kind() {
	case SecretFile:
		return s.File
	case SecretPass:
		return "pass:" + s.Pass
	case SecretService:
		if s.SecretServiceLabel != "" {
			return "secret-service-label:" + s.SecretServiceLabel
		}
		var pairs []string
		for _, name := range sortedKeys(s.SecretService) {
			pairs = append(pairs, name+"="+strings.ReplaceAll(s.SecretService[name], ",", `\,`))
		}
		return "secret-service:" + strings.Join(pairs, ",")
	case SecretCredential:
		return "credential:" + s.Credential
	case SecretCommand:
		if len(s.Command) > 1 {
			return "command:" + s.Command[0] + " …"
		}
		return "command:" + s.Command[0]
	}
	return ""
}

// Clone gives a copy that shares nothing.
func (s Secret) Clone() Secret {
	s.SecretService, s.Command = maps.Clone(s.SecretService), slices.Clone(s.Command)
	return s
}

// ParseSecret reads a secret's source as the command line takes it. A path stays a path: what begins with "/", "~/",
// "./" or "../" is a file, and so is all that has none of the beginnings "pass:", "command:", "credential:",
// "secret-service:" and "secret-service-label:". A command is split at spaces; one whose arguments have spaces is
// written in the agent's file. In secret-service:NAME=VALUE,NAME=VALUE a comma of a value is written "\,".
func ParseSecret(text string) (Secret, error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok || strings.ContainsAny(kind, "/.~") {
		return Secret{File: text}, nil
	}
	switch kind {
	case SecretPass:
		return Secret{Pass: rest}, nil
	case SecretCredential:
		return Secret{Credential: rest}, nil
	case SecretCommand:
		words := strings.Fields(rest)
		if len(words) == 0 {
			return Secret{}, errors.New("command: names no program")
		}
		if strings.ContainsAny(rest, "\"'\\|;&<>$`") {
			return Secret{}, errors.New("command: no shell reads it, so quotes, pipes and variables mean nothing: write it as an array in the agent's file (handler agent edit NAME), or make a script of it")
		}
		return Secret{Command: words}, nil
	case "secret-service-label":
		return Secret{SecretServiceLabel: rest}, nil
	case SecretService:
		attributes, err := parseAttributes(rest)
		return Secret{SecretService: attributes}, err
	}
	return Secret{File: text}, nil
}

func parseAttributes(text string) (map[string]string, error) {
	const stand = "\x00" // for an escaped comma; no attribute has one
	attributes := map[string]string{}
	for _, pair := range strings.Split(strings.ReplaceAll(text, `\,`, stand), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, errors.New("secret-service: write secret-service:NAME=VALUE,NAME=VALUE, as secret-tool store takes them")
		}
		if _, twice := attributes[name]; twice {
			return nil, fmt.Errorf("secret-service: the attribute %s is there twice", configfile.Clip(name))
		}
		attributes[name] = strings.ReplaceAll(value, stand, ",")
	}
	return attributes, nil
}

// check wants exactly one source, well formed.
func (s Secret) check() error {
	given := 0
	for _, set := range []bool{s.File != "", s.Pass != "", len(s.SecretService) > 0, s.SecretServiceLabel != "", s.Credential != "", len(s.Command) > 0} {
		if set {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("has %d sources: give exactly one of file, pass, secret_service, secret_service_label, credential and command", given)
	}
	switch s.Kind() {
	case SecretFile:
		if err := hostPath(s.File); err != nil {
			return fmt.Errorf("file: %w", err)
		}
	case SecretPass:
		return checkEntry(s.Pass)
	case SecretCredential:
		if !plainName(s.Credential) || strings.ContainsRune(s.Credential, '/') {
			return fmt.Errorf("credential = %q must be a name as LoadCredential takes it: no \"/\", no control characters", configfile.Clip(s.Credential))
		}
	case SecretService:
		return s.checkAttributes()
	case SecretCommand:
		return checkCommand(s.Command)
	}
	return nil
}

// plainName wants what is neither an option nor a way up, on one line.
func plainName(text string) bool {
	return oneText(text) && text != "" && text != "." && text != ".." && text[0] != '-'
}

func oneText(text string) bool {
	return len(text) <= maxSecretText && utf8.ValidString(text) && strings.IndexFunc(text, isControl) < 0
}

// checkEntry wants the name of an entry and no way out of the store.
func checkEntry(entry string) error {
	if !plainName(entry) || strings.HasPrefix(entry, "/") || path.Clean(entry) != entry || strings.HasPrefix(entry, "../") {
		return fmt.Errorf("pass = %q must be the name of an entry, such as \"api/anthropic\"", configfile.Clip(entry))
	}
	return nil
}

func (s Secret) checkAttributes() error {
	if !oneText(s.SecretServiceLabel) {
		return errors.New("secret_service_label must be one line")
	}
	if err := atMost("secret_service", len(s.SecretService), maxSecretAttrs); err != nil {
		return err
	}
	for _, name := range sortedKeys(s.SecretService) {
		if name == "" || !oneText(name) || !oneText(s.SecretService[name]) {
			return errors.New("secret_service: names and values are one line each, and a name is not empty")
		}
	}
	return nil
}

// checkCommand wants a program that is found by its name or an absolute path, and arguments that a program can get.
func checkCommand(argv []string) error {
	if err := atMost("command", len(argv), maxSecretArgs); err != nil {
		return err
	}
	for i, arg := range argv {
		if len(arg) > maxSecretText || !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			return fmt.Errorf("command[%d] is too long, not UTF-8, or has a NUL", i)
		}
	}
	switch program := argv[0]; {
	case !plainName(program):
		return fmt.Errorf("command[0] = %q is no program", configfile.Clip(program))
	case strings.ContainsRune(program, '/'):
		if err := hostPath(program); err != nil {
			return fmt.Errorf("command[0]: %w", err)
		}
	}
	return nil
}
