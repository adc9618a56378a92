package sessions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/sandbox"
)

// lookLimit bounds a look at one scope when a run starts, and at all of them when it ends: what is in them is the
// agent's to make, and a folder may be as deep and its file system as slow as somebody likes.
const lookLimit = 30 * time.Second

// An openScope is a scope of a live run and what was found in it when the run started.
type openScope struct {
	path     string // resolved
	readOnly bool
	before   *scopes.View
}

func (s openScope) mode() string {
	if s.readOnly {
		return "ro"
	}
	return "rw"
}

// openScopes checks the scopes, resolves them, and puts the protected paths over them (A.9).
func (r *Run) openScopes(ctx context.Context, _ types.RunRequest, spec *sandbox.Spec) error {
	var err error
	if r.rulesOfScopes, err = r.m.opts.Scopes(); err != nil {
		return fault.Wrap(fault.Usage, err, "edit that file, then: handler doctor", "Handler's settings")
	}
	var mounts []sandbox.Mount
	for _, m := range spec.Mounts {
		s, err := r.openScope(ctx, m)
		if err != nil {
			return err
		}
		mounts = append(mounts, sandbox.Mount{Source: s.path, Target: s.path, ReadOnly: m.ReadOnly}) // P1 compares resolved paths
		if !m.ReadOnly {
			mounts = append(mounts, s.before.Mounts...)
		}
		r.scopes = append(r.scopes, s)
	}
	spec.Mounts = mounts
	dir := spec.Dir // the goroutine below may outlive this call, spec being changed meanwhile
	ctx, cancel := withLookLimit(ctx)
	defer cancel()
	if dir == "" && len(r.scopes) > 0 {
		spec.Dir = r.scopes[0].path
	} else if resolved, err := waitFor(ctx, func() (string, error) { return scopes.Resolve(dir) }); err == nil {
		spec.Dir = resolved
	}
	return nil
}

// openScope checks one scope and looks at it.
func (r *Run) openScope(ctx context.Context, m sandbox.Mount) (openScope, error) {
	ctx, cancel := withLookLimit(ctx)
	defer cancel()
	type found struct {
		path, note string
		view       *scopes.View
	}
	rules := r.rulesOfScopes
	f, err := waitFor(ctx, func() (found, error) {
		checked, err := rules.Check(m.Source)
		if err != nil {
			return found{}, err
		}
		view, err := rules.Look(checked.Path)
		return found{checked.Path, checked.Note, view}, err
	})
	if err != nil {
		return openScope{}, scopeFault(err, m.Source)
	}
	if f.note != "" {
		r.notice("%s", f.note)
	}
	for _, n := range f.view.Notices {
		r.notice("%s", n)
	}
	if len(f.view.Sockets) > 0 {
		r.notice("sockets in the scope are reached past the sandbox's network: %s", named(f.view.Sockets))
	}
	return openScope{f.path, m.ReadOnly, f.view}, nil
}

// closeScopes names to the person what appeared in the scopes that their own tools would run (A.9), and what could
// not be looked at for it.
func (r *Run) closeScopes() {
	if r.dir == nil {
		return // no sandbox was started, and so nothing was done to the scopes
	}
	ctx, cancel := withLookLimit(context.Background())
	defer cancel()
	rules := r.rulesOfScopes
	for _, s := range r.scopes {
		if s.readOnly {
			continue
		}
		after, err := waitFor(ctx, func() (*scopes.View, error) { return rules.Look(s.path) })
		for _, text := range found(s, after, err) {
			text = printable(text, maxNotice)
			r.log.add(types.FromNotice, text)
			r.audit(audit.Record{Kind: audit.KindScope, Subject: s.path, Reason: text})
		}
	}
}

// found says what the look at the end of a run means to the person.
func found(s openScope, after *scopes.View, err error) []string {
	if err != nil {
		return []string{fmt.Sprintf("the scope %s could not be looked at after the run: %v", s.path, err)}
	}
	var texts []string
	if appeared := scopes.Appeared(s.before, after); len(appeared) > 0 {
		texts = append(texts, "your own tools would run these, which appeared, changed or went during the run: "+named(appeared))
	}
	// A scope that was too large before is one that the person was told of, or where only sockets were not looked for.
	if !after.Complete && s.before.Complete {
		texts = append(texts, fmt.Sprintf("the scope %s has too many entries: not all of it was looked at after the run", s.path))
	}
	for _, n := range after.Notices[:min(maxNamed, len(after.Notices))] {
		if !slices.Contains(s.before.Notices, n) {
			texts = append(texts, "after the run: "+n)
		}
	}
	return texts
}

func withLookLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, lookLimit,
		fault.New(fault.Failed, "", "looking at the scope took longer than %.0f s", lookLimit.Seconds()))
}

// waitFor gives what f gives, or the cause of ctx's end. f is not ended by that: it goes on by itself and must touch
// nothing that others use.
func waitFor[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // f can end when nobody waits
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
