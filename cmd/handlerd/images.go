package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/toolbox"
)

// images gives the toolbox's Builder the API's words.
type images struct{ b *toolbox.Builder }

// List gives every image that Handler knows, built or not.
func (i images) List(ctx context.Context) ([]types.Image, error) {
	entries, err := i.b.List(ctx)
	if err != nil {
		return nil, imageFault(err)
	}
	list := make([]types.Image, len(entries))
	for n, e := range entries {
		list[n] = types.Image{
			Kind: e.Kind, Name: e.Name, State: e.State, Reason: e.Reason, Remedy: e.Remedy, Bytes: e.Bytes, Created: e.Created,
		}
	}
	return list, nil
}

// Build builds or checks what req names.
func (i images) Build(ctx context.Context, req types.BuildRequest, progress func(types.Progress)) (string, error) {
	o := toolbox.BuildOptions{
		NoCache: req.NoCache, IfStale: req.IfStale, Mirror: req.Mirror, CACerts: req.CACerts, NPMRegistry: req.NPMRegistry,
		Base: req.Base, Packages: req.Packages, Containerfile: req.Containerfile,
	}
	tell := func(e toolbox.Event) { progress(translate(e)) }
	var err error
	switch {
	case req.Kind == types.KindToolbox && req.CheckOnly:
		err = i.b.CheckToolbox(ctx, req.Name, tell)
	case req.Kind == types.KindToolbox:
		err = i.b.BuildToolbox(ctx, req.Name, o, tell)
	case req.Kind == types.KindAddon && req.CheckOnly:
		err = i.b.CheckAddon(ctx, req.Name, toolbox.DefaultName, tell)
	case req.Kind == types.KindAddon:
		err = i.b.BuildAddon(ctx, req.Name, o, tell)
	case req.Kind == types.KindHarness && !req.CheckOnly:
		err = i.b.BuildHarness(ctx, req.Name, o, tell)
	default:
		return "", fault.New(fault.Usage, "", "there is nothing to build or check of kind %q", req.Kind)
	}
	if err != nil {
		return "", imageFault(err)
	}
	return i.done(ctx, req)
}

// done says what now exists and what to type next.
func (i images) done(ctx context.Context, req types.BuildRequest) (string, error) {
	if req.CheckOnly {
		return fmt.Sprintf("%s %s: every check passed", req.Kind, req.Name), nil
	}
	e, err := i.b.Status(ctx, req.Kind, req.Name)
	if err != nil {
		return "", imageFault(err)
	}
	size := ""
	if e.Bytes > 0 {
		size = fmt.Sprintf(", %d MB", e.Bytes/1e6)
	}
	next := "handler doctor"
	switch req.Kind {
	case types.KindHarness:
		next = "handler run " + req.Name + " \"…\""
	case types.KindToolbox:
		if req.Name != toolbox.DefaultName {
			next = "handler agent add NAME --harness HARNESS --toolbox " + req.Name
		}
	}
	return fmt.Sprintf("%s %s is %s%s; next: %s", req.Kind, req.Name, e.State, size, next), nil
}

func translate(e toolbox.Event) types.Progress {
	p := types.Progress{Line: e.Line, Bytes: e.Done, Total: e.Total}
	if e.Begin {
		p.Step = e.Subject + ": " + e.Step
	}
	if e.End {
		p.Took = max(1, e.Took.Milliseconds())
	}
	return p
}

// Remove removes an image.
func (i images) Remove(ctx context.Context, req types.BuildRequest) error {
	e, err := i.b.Status(ctx, req.Kind, req.Name)
	if err == nil && e.State == toolbox.Missing && req.Name != toolbox.DefaultName {
		return fault.New(fault.NotFound, "see: handler "+req.Kind+" list", "there is no %s %q", req.Kind, req.Name)
	}
	return imageFault(i.b.Remove(ctx, req.Kind, req.Name))
}

// imageFault says what a failed build means to the person.
func imageFault(err error) error {
	if err == nil {
		return nil
	}
	var build *toolbox.BuildError
	var check *toolbox.CheckError
	var missing *toolbox.NotBuiltError
	switch {
	case errors.As(err, &build):
		return &fault.Fault{Kind: fault.Failed, Text: err.Error(), Hint: build.Hint, Err: err}
	case errors.As(err, &check):
		return &fault.Fault{Kind: fault.Failed, Text: err.Error(), Hint: check.Hint, Err: err}
	case errors.As(err, &missing):
		return &fault.Fault{Kind: fault.Failed, Text: err.Error(), Hint: missing.Hint, Err: err}
	}
	return err
}
