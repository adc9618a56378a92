package toolbox

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/handlerd/handler/sandbox"
)

// caTarget is where build steps find the authorities to trust; nothing of it stays in an image.
const caTarget = "/run/handler-ca"

// caFile is the file there.
const caFile = caTarget + "/ca.pem"

// maxCABytes bounds what is trusted.
const maxCABytes = 8 << 20

// fromLine is a line that begins a stage over an image. It matches no line of a script in a here-document.
var fromLine = regexp.MustCompile(`(?im)^[ \t]*FROM[ \t]+(--\S+[ \t]+)*(\S+)([ \t]+AS[ \t]+\S+)?[ \t]*\r?$`)

// caVariables are how the tools of a build are told of caFile.
var caVariables = []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT",
	"GIT_SSL_CAINFO", "npm_config_cafile"}

// A workspace is the temporary folder of one build: its context, and the authorities it trusts. env is for the steps
// alone.
type workspace struct {
	dir string
	env map[string]string
	ca  []sandbox.Mount
}

// workspace makes one; the caller removes it with close.
func (b *Builder) workspace(o BuildOptions) (*workspace, error) {
	dir, err := os.MkdirTemp(b.opts.TempDir, "handler-build-")
	if err != nil {
		return nil, err
	}
	w := &workspace{dir: dir, env: map[string]string{}}
	if err := w.fill(b.opts, o); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *workspace) fill(opts Options, o BuildOptions) error {
	if err := os.Mkdir(w.context(), 0o755); err != nil {
		return err
	}
	// npm's own patience is minutes, with no word in between.
	w.env["npm_config_fetch_retry_mintimeout"], w.env["npm_config_fetch_retry_maxtimeout"] = "1000", "5000"
	for name, value := range opts.Env {
		w.env[name] = value
	}
	if o.NPMRegistry != "" {
		if !strings.HasPrefix(o.NPMRegistry, "https://") && !strings.HasPrefix(o.NPMRegistry, "http://") {
			return fmt.Errorf("%q is no npm registry: give an http or https address", o.NPMRegistry)
		}
		w.env["npm_config_registry"] = o.NPMRegistry
	}
	bundle, err := authorities(opts.CABundles, o.CACerts)
	if err != nil || len(bundle) == 0 {
		return err
	}
	ca := filepath.Join(w.dir, "ca")
	if err := os.Mkdir(ca, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(ca, path.Base(caFile)), bundle, 0o644); err != nil {
		return err
	}
	w.ca = []sandbox.Mount{{Source: ca, Target: caTarget, ReadOnly: true}}
	for _, name := range caVariables {
		w.env[name] = caFile
	}
	return nil
}

func (w *workspace) context() string { return filepath.Join(w.dir, "context") }

func (w *workspace) close() error { return os.RemoveAll(w.dir) }

// authorities joins PEM files. Those of machine may be missing, those that were asked for may not.
func authorities(machine, asked []string) ([]byte, error) {
	var out bytes.Buffer
	for i, name := range append(append([]string{}, machine...), asked...) {
		data, err := readBounded(name, maxCABytes)
		if errors.Is(err, fs.ErrNotExist) && i < len(machine) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if block, _ := pem.Decode(data); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", name)
		}
		out.Write(data)
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

// copyTree copies source into the context. Symbolic links become what they point to; the file system that a registry
// gives lets none of them lead out of its folder.
func (w *workspace) copyTree(source fs.FS) error {
	return fs.WalkDir(source, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(w.context(), filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := fs.Stat(source, name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		f, err := source.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return writeFile(target, f, 0o644|info.Mode().Perm()&0o111)
	})
}

// copyFile copies a file of the host into the context.
func (w *workspace) copyFile(name, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeFile(filepath.Join(w.context(), name), f, 0o755)
}

func writeFile(target string, from io.Reader, mode fs.FileMode) error {
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// appendStage makes the image of folder alone out of the stage "build" of the context's Containerfile.
func (w *workspace) appendStage(containerfile, folder string) error {
	name := filepath.Join(w.context(), filepath.FromSlash(containerfile))
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !buildStage.Match(data) {
		return fmt.Errorf("%s has no stage that begins: FROM ${TOOLBOX} AS build", containerfile)
	}
	return os.WriteFile(name, fmt.Appendf(data, "\n\nFROM scratch\nCOPY --from=build %s/ /\n", folder), 0o644)
}

// declare makes env visible to every step, as build arguments: these are in a step's environment where its stage
// declares them, and never in an image.
func (w *workspace) declare(containerfile string) error {
	name := filepath.Join(w.context(), filepath.FromSlash(containerfile))
	data, err := os.ReadFile(name)
	if err != nil || len(w.env) == 0 {
		return err
	}
	line := "\nARG " + strings.Join(sortedKeys(w.env), " ") // one instruction: each makes a layer for a moment
	text := fromLine.ReplaceAllStringFunc(string(data), func(from string) string {
		if strings.EqualFold(fromLine.FindStringSubmatch(from)[2], "scratch") {
			return from
		}
		return strings.TrimRight(from, "\r") + line
	})
	return os.WriteFile(name, []byte(text), 0o644)
}
