package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/secrets"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
)

// Secrets reads the values of secrets (handlerd/secrets). It keeps none.
type Secrets interface {
	// Read reads the whole of a secret, for a file.
	Read(context.Context, render.Source) (secrets.Value, error)
	// Key reads a secret that is one line.
	Key(context.Context, render.Source) (secrets.Value, error)
}

// readSecrets reads the bindings' secrets into files on the sandbox's tmpfs.
func (r *Run) readSecrets(ctx context.Context, _ types.RunRequest, spec *sandbox.Spec) error {
	files, err := r.secretFiles(ctx, r.plan.Secrets, "a file in the sandbox")
	spec.Files = append(slices.Clone(spec.Files), files...)
	return err
}

// secretFiles reads secrets into files for one use.
func (r *Run) secretFiles(ctx context.Context, list []render.SecretFile, use string) ([]sandbox.File, error) {
	var files []sandbox.File
	for _, s := range list {
		value, err := r.m.opts.Secrets.Read(ctx, s.Source)
		if err := r.usedSecret(s.Name, s.Source, use, err); err != nil {
			return nil, fault.Wrap(fault.Failed, err, secretHint(r.plan.Agent), "the secret %s", s.Name)
		}
		files = append(files, sandbox.File{Path: s.Path, Mode: s.Mode, Content: []byte(value.Reveal())})
	}
	return files, nil
}

// boxSecrets reads secrets into files of a hosted server's own sandbox: anew at each start of one, so that they are kept
// nowhere in between.
func (r *Run) boxSecrets(ctx context.Context, list []render.SecretFile) ([]sandbox.File, error) {
	return r.secretFiles(ctx, list, "a file in its server's own sandbox")
}

// tryBox reads a hosted server's secrets to see that they can be: a source that gives none is told of now, and not in the
// middle of a turn.
func (r *Run) tryBox(ctx context.Context, h render.Hosted) error {
	if h.Box == nil {
		return nil
	}
	_, err := r.boxSecrets(ctx, h.Box.Secrets)
	return err
}

// tryKey reads the key of an upstream to see that it can be, and writes down that the run uses it.
func (r *Run) tryKey(ctx context.Context, u render.Upstream) error {
	_, err := r.m.opts.Secrets.Key(ctx, u.Secret)
	if err := r.usedSecret(u.Name, u.Secret, "the key of an upstream", err); err != nil {
		return fault.Wrap(fault.Failed, err, secretHint(r.plan.Agent), "the key of %s", u.Name)
	}
	return nil
}

func secretHint(agent string) string { return "handler secret check " + agent }

// usedSecret writes down that a secret was read, or could not be: its name, the kind of its source and what for, once a
// run. It gives the error of the reading, or that of the writing: a secret whose use is not written down is not given.
func (r *Run) usedSecret(name string, source render.Source, use string, err error) error {
	rec := audit.Record{Kind: audit.KindSecret, Subject: name, Reason: fmt.Sprintf("read from %s for %s", source.Kind(), use)}
	if err != nil {
		rec.Verdict, rec.Reason = audit.Refused, fmt.Sprintf("could not be read from %s for %s", source.Kind(), use)
	}
	if failed := r.record(rec); failed != nil && err == nil {
		return failed
	}
	return err
}

// A key is read at each request of the agent's to its upstream, and held by nobody in between. Requests that come while
// it is read share that reading, so that an agent starts no more than one program at a time.
type key struct {
	run    *Run
	source render.Source

	mu      sync.Mutex
	reading *reading  // protected by mu; nil while nobody reads
	failed  error     // protected by mu; of the last reading
	again   time.Time // protected by mu; until when failed is the answer
}

// keyPause is how long a key that could not be read is not tried again: reading may open a window that asks the person
// for a passphrase, and an agent must not have one after the other open.
const keyPause = 10 * time.Second

// A reading is one of a key's, under way.
type reading struct {
	done  chan struct{}
	value secrets.Value // set before done is closed
	err   error
}

func newKey(r *Run, source render.Source) *key { return &key{run: r, source: source} }

// read gives the key as it is now. The run's end ends it.
func (k *key) read() (string, error) {
	k.mu.Lock()
	now := k.reading
	if now == nil && k.failed != nil && time.Now().Before(k.again) {
		defer k.mu.Unlock()
		return "", k.failed
	}
	if now == nil {
		now = &reading{done: make(chan struct{})}
		k.reading = now
		k.mu.Unlock()
		now.value, now.err = k.run.m.opts.Secrets.Key(k.run.ctx, k.source)
		k.mu.Lock()
		k.reading = nil
		k.failed, k.again = now.err, time.Now().Add(keyPause)
		k.mu.Unlock()
		close(now.done)
	} else {
		k.mu.Unlock()
		<-now.done
	}
	if now.err != nil {
		return "", now.err
	}
	return now.value.Reveal(), nil
}
