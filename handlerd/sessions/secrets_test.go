package sessions

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/secrets"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox/fake"
)

// A vault gives what a test says, and counts how often it is asked.
type vault struct {
	mu    sync.Mutex
	asked int
	give  func(ctx context.Context, n int) (secrets.Value, error)
}

func (v *vault) Read(ctx context.Context, _ render.Source) (secrets.Value, error) {
	v.mu.Lock()
	v.asked++
	n := v.asked
	v.mu.Unlock()
	return v.give(ctx, n)
}

func (v *vault) Key(ctx context.Context, s render.Source) (secrets.Value, error) {
	return v.Read(ctx, s)
}

// TestKeyIsReadAnew: each request reads the key, those that come together share one reading, and the run's end ends it.
func TestKeyIsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		v := &vault{give: func(ctx context.Context, n int) (secrets.Value, error) {
			switch n {
			case 1, 2:
				return secrets.New([]string{"first", "second"}[n-1]), nil
			case 3:
				<-release
				return secrets.New("shared"), nil
			}
			<-ctx.Done()
			return secrets.Value{}, ctx.Err()
		}}
		ctx, cancel := context.WithCancelCause(t.Context())
		k := newKey(&Run{m: &Manager{opts: Options{Secrets: v}}, ctx: ctx}, render.Source{Pass: "x"})
		for _, want := range []string{"first", "second"} {
			if got, err := k.read(); got != want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := k.read(); got != "shared" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		synctest.Wait() // all of them wait for the third reading
		close(release)
		wg.Wait()
		if v.asked != 3 {
			t.Errorf("read %d times, want 3", v.asked)
		}
		wg.Go(func() {
			if _, err := k.read(); !errors.Is(err, context.Canceled) {
				t.Errorf("when the run has ended: %v", err)
			}
		})
		synctest.Wait()
		cancel(errKilled)
		wg.Wait()
	})
}

// TestKeyIsNotAskedForAgainAndAgain: an agent that asks on while its key cannot be read, such as when the person closes
// the window that asks for a passphrase, does not open one after the other.
func TestKeyIsNotAskedForAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := errors.New("the passphrase was not given")
		v := &vault{give: func(_ context.Context, n int) (secrets.Value, error) {
			if n == 1 {
				return secrets.Value{}, closed
			}
			return secrets.New("key"), nil
		}}
		k := newKey(&Run{m: &Manager{opts: Options{Secrets: v}}, ctx: t.Context()}, render.Source{Pass: "x"})
		for range 100 {
			if _, err := k.read(); !errors.Is(err, closed) {
				t.Fatal(err)
			}
		}
		if v.asked != 1 {
			t.Errorf("read %d times", v.asked)
		}
		time.Sleep(keyPause) // of the bubble's time
		if got, err := k.read(); got != "key" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestSecretUseIsWritten: name and kind of source are in the audit log, the value and the place are not; a use that
// cannot be written is refused.
func TestSecretUseIsWritten(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	source := render.Source{Command: []string{"tool", "hunter2"}}
	if err := r.usedSecret("shop.login", source, "a file in the sandbox", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := r.usedSecret("model", source, "the key of an upstream", broken); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	got, err := audit.Tail(w.audit, 9, func(r audit.Record) bool { return r.Kind == audit.KindSecret })
	if err != nil || len(got) != 2 || got[0].Subject != "shop.login" || got[0].Reason != "read from command for a file in the sandbox" ||
		got[0].Agent != "web" || got[1].Verdict != audit.Refused || strings.Contains(got[0].Reason+got[1].Reason, "hunter2") {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.m.opts.Audit.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.usedSecret("shop.login", source, "a file", nil); err == nil {
		t.Error("a use that was not written down was let through")
	}
}
