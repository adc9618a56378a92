package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/handlerd/settings"
)

// A Keeper shows and changes agents for somebody who is not at the file: the page, or another program. All fields but mu
// are needed. It is safe for concurrent use.
type Keeper struct {
	Catalog
	// Scopes says what may be a scope.
	Scopes func() (scopes.Config, error)
	// Display says which screens there are.
	Display func(context.Context) types.DisplayState
	// Changed is called after an agent was saved or removed.
	Changed func()

	mu sync.Mutex // one change at a time
}

// CheckScopes refuses scopes that every run would refuse. A folder of a saved agent that is not there now, such as one on
// a disk that is not mounted, is no reason to keep its person from changing something else. Errors are *fault.Fault.
func (c Catalog) CheckScopes(rules scopes.Config, a *agents.Agent, saved bool) error {
	for _, s := range a.Scopes {
		path := c.Expand(s.Path)
		var bad *scopes.Error
		_, err := rules.Check(path)
		switch {
		case err == nil:
		case saved && scopes.Missing(path):
		case errors.As(err, &bad):
			return fault.New(fault.Refused, bad.Remedy, "agent %s is not saved: the scope %s %s, so no run of it would start", a.Name, bad.Path, bad.Reason)
		default:
			return fault.Wrap(fault.Usage, err, "", "agent %s is not saved: the scope %s", a.Name, path)
		}
	}
	return nil
}

// judge says whether runs of an agent would start: by the code of a start.
func (k *Keeper) judge(a *agents.Agent, saved bool) error {
	if err := k.Catalog.Check(a); err != nil {
		return fault.Wrap(fault.Usage, err, "", "agent %s is not saved", a.Name)
	}
	rules, err := k.Scopes()
	if err != nil {
		return fault.Wrap(fault.Usage, err, settings.Mend, "Handler's settings")
	}
	return k.CheckScopes(rules, a, saved)
}

// Detail gives one agent, a faulty one too. Errors are *fault.Fault.
func (k *Keeper) Detail(name string) (types.AgentDetail, error) {
	d := types.AgentDetail{AgentInfo: types.AgentInfo{Name: name, DisplayMode: agents.DisplayNone.Mode(), Scopes: []string{}}, Errors: []types.AgentError{}, Settings: json.RawMessage("null")}
	path, text, err := agents.Text(k.AgentsDir(), name)
	var missing *agents.NotFoundError
	saved := err == nil
	if err != nil && !errors.As(err, &missing) {
		return d, agentFault(err)
	}
	a, err := k.Agent(name)
	if err != nil && !saved {
		return d, err
	}
	if saved {
		d.File, d.Etag, d.TOML = path, etag(text), string(text)
	}
	if err != nil {
		d.Errors = append(d.Errors, agentError(err))
		d.Problem = err.Error()
	} else if err := k.describe(&d, a, saved); err != nil {
		return d, err
	}
	d.Defaults, err = k.defaults()
	return d, err
}

// describe adds what a whole agent says.
func (k *Keeper) describe(d *types.AgentDetail, a *agents.Agent, saved bool) error {
	d.AgentInfo = info(a, d.File)
	if !saved {
		d.TOML = string(agents.Format(a))
	}
	if err := k.judge(a, saved); err != nil {
		d.Errors = append(d.Errors, agentError(err))
	}
	var err error
	d.Settings, err = agents.ToJSON(a)
	return err
}

// info is an agent's line in a list.
func info(a *agents.Agent, file string) types.AgentInfo {
	v := types.AgentInfo{Name: a.Name, Harness: a.Harness, Description: a.Description, Display: a.Display != agents.DisplayNone, DisplayMode: a.Display.Mode(), Scopes: []string{}, File: file}
	for _, s := range a.Scopes {
		mode := s.Mode
		if mode == "" {
			mode = agents.ModeReadWrite
		}
		v.Scopes = append(v.Scopes, s.Path+" ("+mode+")")
	}
	return v
}

// etag is what changes when a file does.
func etag(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// agentError gives an error with its place.
func agentError(err error) types.AgentError {
	f := fault.Of(err)
	e := types.AgentError{Message: f.Text, Hint: f.Hint}
	if at, ok := errors.AsType[*configfile.Error](err); ok {
		e.Line, e.Column = at.Line, at.Column
		if at.Line > 0 {
			e.Message = at.Message
		}
	}
	return e
}

// CheckEdit says what an edit would be, and saves nothing.
func (k *Keeper) CheckEdit(ctx context.Context, edit types.AgentEdit) (types.AgentCheck, error) {
	v := types.AgentCheck{Errors: []types.AgentError{}, Notices: []string{}, Settings: json.RawMessage("null"), TOML: edit.TOML}
	if err := agents.ValidName(edit.Name); err != nil {
		return v, fault.New(fault.Usage, "", "%v", err)
	}
	_, before, err := agents.Text(k.AgentsDir(), edit.Name)
	saved := err == nil
	a, text, lost, err := read(edit, before)
	if err != nil {
		if fault.Of(err).Kind == fault.Usage {
			return v, err
		}
		v.Errors = append(v.Errors, agentError(err))
		return v, nil
	}
	v.TOML = string(text)
	if v.Settings, err = agents.ToJSON(a); err != nil {
		return v, err
	}
	if err := k.judge(a, saved); err != nil {
		v.Errors = append(v.Errors, agentError(err))
	}
	if lost {
		v.Notices = append(v.Notices, "the file is written anew: comments in it are lost; edit its text to keep them")
	}
	if plan, err := k.render(a, "/nowhere"); err == nil {
		v.Notices = append(v.Notices, plan.Notices...)
	}
	if a.Display == agents.DisplayWayland {
		v.Notices = append(v.Notices, displayNotice(k.Display(ctx)))
	}
	return v, nil
}

// displayNotice says what a display would give the sandbox, here and now.
func displayNotice(d types.DisplayState) string {
	for _, s := range d.Sockets {
		if s.Path == d.Chosen {
			return s.Says
		}
	}
	if d.Problem != nil {
		return "runs with windows would not start now: " + d.Problem.Message
	}
	return "runs with windows would not start now: there is no screen"
}

// read makes the agent and the text of an edit; lost tells that comments of the file before it would be.
func read(edit types.AgentEdit, before []byte) (a *agents.Agent, text []byte, lost bool, err error) {
	switch hasSettings := len(edit.Settings) > 0 && string(edit.Settings) != "null"; {
	case hasSettings == (edit.TOML != ""):
		return nil, nil, false, fault.New(fault.Usage, "", "an agent is given by exactly one of settings and toml")
	case !hasSettings:
		a, err = agents.Parse(edit.Name, edit.Name+".toml", []byte(edit.TOML))
		return a, []byte(edit.TOML), false, err
	}
	if a, err = agents.FromJSON(edit.Name, edit.Settings); err != nil {
		if at, ok := errors.AsType[*configfile.Error](err); ok {
			err = configfile.Errorf(edit.Name, "%s", at.Message) // the place is of a text that nobody has seen
		}
		return nil, nil, false, err
	}
	text, lost = agents.Edited(edit.Name, before, a)
	return a, text, lost, nil
}

// Put saves an agent. match is the tag of the file that it replaces; "*" says that there must be none. Errors are
// *fault.Fault: Conflict where the file is another.
func (k *Keeper) Put(name string, edit types.AgentEdit, match string) (types.AgentDetail, error) {
	if edit.Name != "" && edit.Name != name {
		return types.AgentDetail{}, fault.New(fault.Usage, "save it under the new name and remove the old one", "the agent's name %q is not that of the address, %q", configfile.Clip(edit.Name), configfile.Clip(name))
	}
	edit.Name = name
	k.mu.Lock()
	defer k.mu.Unlock()
	before, err := k.matching(name, match)
	if err != nil {
		return types.AgentDetail{}, err
	}
	a, text, _, err := read(edit, before)
	if err != nil {
		return types.AgentDetail{}, unsaved(name, err)
	}
	if err := k.judge(a, before != nil); err != nil {
		return types.AgentDetail{}, err
	}
	if _, err := agents.SaveText(k.AgentsDir(), name, text, before != nil); err != nil {
		return types.AgentDetail{}, unsaved(name, err)
	}
	k.Changed()
	return k.Detail(name)
}

// unsaved says that an agent was not saved.
func unsaved(name string, err error) error {
	f := fault.Of(err)
	kind := fault.Usage
	if f.Kind != fault.Failed {
		kind = f.Kind
	}
	return fault.Wrap(kind, err, f.Hint, "agent %s is not saved", name)
}

// matching gives the file that a tag is of; nil where there is none and "*" says so.
func (k *Keeper) matching(name, match string) ([]byte, error) {
	if err := agents.ValidName(name); err != nil {
		return nil, fault.New(fault.Usage, "", "%v", err)
	}
	_, text, err := agents.Text(k.AgentsDir(), name)
	var missing *agents.NotFoundError
	switch {
	case errors.As(err, &missing) && match == "*":
		return nil, nil
	case errors.As(err, &missing):
		return nil, fault.New(fault.Conflict, "save it as a new one", "agent %s was removed meanwhile", name)
	case err != nil:
		return nil, agentFault(err)
	case match == "*":
		return nil, fault.New(fault.Conflict, "change that one, or choose another name", "there is an agent %s already", name)
	case match != etag(text):
		return nil, fault.New(fault.Conflict, "load it again, and change that", "the file of agent %s was changed meanwhile", name)
	}
	return append([]byte{}, text...), nil
}

// Remove removes a saved agent; its state stays. match is the tag of its file, "" for any. Errors are *fault.Fault.
func (k *Keeper) Remove(name, match string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if match != "" {
		if _, err := k.matching(name, match); err != nil {
			return err
		}
	}
	if err := agents.Remove(k.AgentsDir(), name); err != nil {
		var missing *agents.NotFoundError
		if errors.As(err, &missing) {
			return fault.New(fault.NotFound, "see: handler agent list", "%v", err)
		}
		return agentFault(err)
	}
	k.Changed()
	return nil
}

// Folders lists the folders in one, for choosing a scope. Errors are *fault.Fault.
func (k *Keeper) Folders(under string) (types.Folders, error) {
	rules, err := k.Scopes()
	if err != nil {
		return types.Folders{}, fault.Wrap(fault.Usage, err, settings.Mend, "Handler's settings")
	}
	if under == "" {
		under = k.Home
	}
	list, err := rules.Folders(k.Expand(under))
	if err != nil {
		return types.Folders{}, fault.Wrap(fault.Usage, err, "", "the folder %s", configfile.Clip(under))
	}
	v := types.Folders{Path: list.Path, Refused: list.Refused, Folders: []types.Folder{}, Cut: list.Cut}
	if list.Path != filepath.Clean(k.Home) {
		v.Parent = filepath.Dir(list.Path)
	}
	for _, f := range list.Folders {
		v.Folders = append(v.Folders, types.Folder{Name: filepath.Base(f.Path), Path: f.Path, Refused: f.Refused})
	}
	return v, nil
}
