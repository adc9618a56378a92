package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/beneath"
)

// OpenFile implements sandbox.Driver.
func (d *Driver) OpenFile(_ context.Context, id, name string) (*os.File, error) {
	return d.onTmpfs(id, "open a file", name, beneath.Open)
}

// CreateFile implements sandbox.Driver.
func (d *Driver) CreateFile(_ context.Context, id, name string) (*os.File, error) {
	return d.onTmpfs(id, "make a file", name, beneath.Create)
}

func (d *Driver) onTmpfs(id, op, name string, do func(dir int, rest string) (*os.File, error)) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, &sandbox.EngineError{Op: op, Err: fmt.Errorf("%s in the sandbox: %w", name, err)}
	}
	b := d.box(id)
	switch {
	case b == nil || !b.running():
		return fail(errors.New("the sandbox is not running"))
	case !path.IsAbs(name) || path.Clean(name) != name:
		return fail(errors.New("it is no clean absolute path"))
	}
	if err := d.fault(StepFile, b.name); err != nil {
		return nil, err
	}
	best := ""
	for target := range b.tmpfs {
		if strings.HasPrefix(name, target+"/") && len(target) > len(best) {
			best = target
		}
	}
	if best == "" {
		return fail(errors.New("it is not on a tmpfs of the sandbox"))
	}
	dir, err := os.Open(b.tmpfs[best])
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	f, err := do(int(dir.Fd()), name[len(best)+1:])
	if err != nil {
		return fail(err)
	}
	return f, nil
}
