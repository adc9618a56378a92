package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/handlerd/handler/sandbox/beneath"
)

// errNoTmpfs is why a path is not opened that lies elsewhere.
var errNoTmpfs = errors.New("it is not on a tmpfs of the sandbox")

// OpenFile opens a regular file of a running sandbox (sandbox.Driver). It asks neither podman nor a process inside: the
// sandbox's tmpfs are held since before its command ran.
func (d *Driver) OpenFile(ctx context.Context, id, name string) (*os.File, error) {
	return d.onTmpfs(ctx, id, "open a file", name, beneath.Open)
}

// CreateFile makes a file of a running sandbox (sandbox.Driver).
func (d *Driver) CreateFile(ctx context.Context, id, name string) (*os.File, error) {
	return d.onTmpfs(ctx, id, "make a file", name, beneath.Create)
}

func (d *Driver) onTmpfs(ctx context.Context, id, op, name string, do func(dir int, rest string) (*os.File, error)) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v, done, err := d.viewOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, d.engineError(op, errors.New("the sandbox has ended"))
	}
	defer done()
	f, err := v.onTmpfs(name, do)
	if err != nil {
		return nil, d.engineError(op, fmt.Errorf("%s in the sandbox: %w", name, err))
	}
	return f, nil
}

// onTmpfs does something with a path's innermost tmpfs and the rest of the path.
func (v *view) onTmpfs(name string, do func(dir int, rest string) (*os.File, error)) (*os.File, error) {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return nil, errors.New("it is no clean absolute path")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, errors.New("the sandbox has ended")
	}
	best, dir := "", -1
	for target, fd := range v.at {
		if strings.HasPrefix(name, target+"/") && len(target) > len(best) {
			best, dir = target, fd
		}
	}
	if dir < 0 {
		return nil, errNoTmpfs
	}
	return do(dir, name[len(best)+1:])
}
