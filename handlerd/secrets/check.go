package secrets

import (
	"context"
	"time"

	"github.com/handlerd/handler/agents"
)

// A Checked says whether a secret can be read, never what it is.
type Checked struct {
	Kind   string        // of its source
	Source string        // as agents.Secret writes it
	Took   time.Duration // to read it
	Err    error         // nil if it was read
}

// Check reads a secret as a run would, and forgets it. line is for one that is a key.
func (r *Reader) Check(ctx context.Context, source agents.Secret, line bool) Checked {
	start := time.Now()
	read := r.Read
	if line {
		read = r.Key
	}
	_, err := read(ctx, source)
	return Checked{source.Kind(), source.String(), time.Since(start), err}
}
