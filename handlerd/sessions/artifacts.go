package sessions

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
)

// ArtifactChanged writes an artifact of a live run into its log, so that whoever reads that from its beginning knows
// what there is. It is the store's Options.Changed.
func (m *Manager) ArtifactChanged(a types.Artifact, removed bool) {
	m.mu.Lock()
	r := m.runs[a.Run]
	m.mu.Unlock()
	if r == nil {
		m.tellSession(a, removed)
		return
	}
	text := fmt.Sprintf("kept %s (%d bytes): handler artifacts get %s", a.Name, a.Bytes, a.ID[:min(8, len(a.ID))])
	if removed {
		text = "removed " + a.Name
	}
	r.log.artifact(text, a, removed)
	r.recorder.artifact(a, removed)
}

// tellSession writes an artifact of a run that has ended into its session.
func (m *Manager) tellSession(a types.Artifact, removed bool) {
	if m.opts.History == nil || a.Session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	id, err := m.opts.History.Known(ctx, a.Agent, a.Session)
	if err != nil || id == "" {
		return
	}
	if _, err := m.opts.History.Get(ctx, id); err == nil { // it is in memory then
		m.opts.History.Queue(id, types.EventArtifact, "", types.EventArtifactData{Artifact: a, Removed: removed})
	}
}

// ApprovalChanged writes what happens to a question into the session that it is about. It is the queue's Options.Changed.
func (m *Manager) ApprovalChanged(e types.ApprovalEvent) {
	if e.Approval == nil {
		return
	}
	m.mu.Lock()
	r := m.runs[e.Approval.Run]
	m.mu.Unlock()
	if r != nil {
		r.recorder.approval(e)
	}
}

// SettleArtifacts returns when what the run's agent, or with "" every live run's, has shown so far is kept, or ctx is
// done.
func (m *Manager) SettleArtifacts(ctx context.Context, run string) {
	m.mu.Lock()
	var runs []*Run
	for id, r := range m.runs {
		if run == "" || id == run {
			runs = append(runs, r)
		}
	}
	m.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(func() { r.pictures.settle(ctx) })
	}
	wg.Wait()
}

// hasArtifacts tells whether an id was that of a run whose artifacts are still there: another run of that id would have
// them too. A store that cannot be used has none to mix up.
func (m *Manager) hasArtifacts(id string) bool {
	if m.opts.Artifacts == nil {
		return false
	}
	runs, err := m.opts.Artifacts.Runs(context.Background(), m.opts.Principal, id)
	return err == nil && len(runs) > 0
}

// SaveTarget says where an artifact that is to go to dest may be saved: in a scope that is rw, which has passed the
// check of a run's start, and under no name that the person's own tools run (A.9). Errors are *fault.Fault.
func (m *Manager) SaveTarget(ctx context.Context, dest types.Destination) (artifacts.SaveRequest, error) {
	var none artifacts.SaveRequest
	if (dest.Run == "") == (dest.Agent == "") || dest.Run != "" && dest.Cwd != "" {
		return none, fault.New(fault.Usage, "name one: --agent AGENT or --run RUN", "a destination is an agent or a live run")
	}
	open, rules, err := m.scopesOf(ctx, dest)
	if err != nil {
		return none, err
	}
	s, folder, err := chooseScope(open, dest.Folder)
	if err != nil {
		return none, err
	}
	var paths []string
	for _, o := range open {
		paths = append(paths, o.path)
	}
	protected := rules.ReadOnly(paths)
	return artifacts.SaveRequest{Scope: s.path, Folder: folder, Refuse: func(path string) error {
		if protected(path) {
			return fault.New(fault.Refused, "choose another name or folder, or copy it yourself: handler artifacts get",
				"refused by A.9: your own tools would run %s or read orders from it", path)
		}
		return nil
	}}, nil
}

// scopesOf gives the scopes of a live run, or those that a run of the agent would have.
func (m *Manager) scopesOf(ctx context.Context, dest types.Destination) ([]openScope, scopes.Config, error) {
	if dest.Run != "" {
		r, err := m.find(dest.Run)
		if err != nil {
			return nil, scopes.Config{}, err
		}
		if r.state.Load().(string) == types.StateStarting {
			return nil, scopes.Config{}, fault.New(fault.Failed, "try again", "run %s is still starting", r.id)
		}
		return r.scopes, r.rulesOfScopes, nil
	}
	if dest.Cwd == "" || !filepath.IsAbs(dest.Cwd) {
		return nil, scopes.Config{}, fault.New(fault.Usage, "", "the folder that a run of the agent would start in is not given as an absolute path")
	}
	plan, err := m.opts.Plan(dest.Agent, dest.Cwd)
	if err != nil {
		return nil, scopes.Config{}, err
	}
	rules, err := m.opts.Scopes()
	if err != nil {
		return nil, scopes.Config{}, fault.Wrap(fault.Usage, err, "", "Handler's settings")
	}
	ctx, cancel := withLookLimit(ctx)
	defer cancel()
	var open []openScope
	for _, mount := range plan.Sandbox.Mounts {
		checked, err := waitFor(ctx, func() (scopes.Scope, error) { return rules.Check(mount.Source) })
		if err != nil {
			return nil, scopes.Config{}, scopeFault(err, mount.Source)
		}
		open = append(open, openScope{path: checked.Path, readOnly: mount.ReadOnly})
	}
	return open, rules, nil
}

// scopeFault says why a folder is no scope.
func scopeFault(err error, path string) error {
	var bad *scopes.Error
	if errors.As(err, &bad) {
		return &fault.Fault{Kind: fault.Refused, Text: "the scope " + bad.Path + " " + bad.Reason, Hint: bad.Remedy, Err: err}
	}
	return fault.Wrap(fault.Failed, err, "", "the scope %s", path)
}

// chooseScope gives the scope that a folder lies in, the innermost one, and the folder below it.
func chooseScope(open []openScope, folder string) (openScope, string, error) {
	var writable []openScope
	var names []string
	for _, s := range open {
		if !s.readOnly {
			writable, names = append(writable, s), append(names, s.path)
		}
	}
	if len(writable) == 0 {
		return openScope{}, "", fault.New(fault.Refused, "handler artifacts get", "refused: no scope of it is rw")
	}
	if !filepath.IsAbs(folder) {
		if len(writable) > 1 {
			return openScope{}, "", fault.New(fault.Usage, "name the whole folder, below one of: "+strings.Join(names, ", "), "it has several scopes that are rw")
		}
		folder = filepath.Join(writable[0].path, folder)
	}
	s, rel, ok := innermost(open, filepath.Clean(folder))
	if !ok {
		// The person may have named it by another way that leads there.
		if resolved, err := scopes.Resolve(folder); err == nil {
			s, rel, ok = innermost(open, resolved)
		}
	}
	if !ok || s.readOnly {
		return openScope{}, "", fault.New(fault.Refused, "name a folder in one of: "+strings.Join(names, ", "), "refused: %s lies in no scope that is rw", folder)
	}
	if rel == "." {
		rel = ""
	}
	return s, rel, nil
}

func innermost(open []openScope, path string) (openScope, string, bool) {
	var found openScope
	rel, ok := "", false
	for _, s := range open {
		if r, err := filepath.Rel(s.path, path); err == nil && filepath.IsLocal(r) && (!ok || len(s.path) > len(found.path)) {
			found, rel, ok = s, r, true
		}
	}
	return found, rel, ok
}
