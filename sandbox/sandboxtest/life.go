package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// contracts are the sentences that every driver keeps.
func (s *suite) contracts() []contract {
	return []contract{
		{"ExitCodes", s.exitCodes},
		{"CommandNotFound", s.commandNotFound},
		{"WaitEndsWithItsContext", s.waitContext},
		{"StdioIsJoinedToACP", s.stdio},
		{"NamesAreUnique", s.names},
		{"ListsByLabel", s.list},
		{"StopObeysTerm", s.stopTerm},
		{"StopKillsStubbornTrees", s.stopStubborn},
		{"StopWhatIsGone", s.stopGone},
		{"RemoveIsIdempotentAndComplete", s.removeTwice},
		{"FailedStartLeavesNothing", s.failedStart},
		{"BadSpecs", s.badSpecs},
		{"UnenforcedLimits", s.unenforced},
		{"ConcurrentStarts", s.concurrent},
		{"Stats", s.stats},
		{"FilesOutAndIn", s.filesOutAndIn},
		{"FilesRace", s.filesRace},
		{"EnvironmentAndFolder", s.environment},
		{"Scopes", s.scopes},
		{"Volumes", s.volumes},
		{"ImageMounts", s.imageMounts},
		{"Files", s.files},
		{"FilesAreNowhereElse", s.filesHidden},
		{"RunDirectory", s.runDirectory},
		{"Display", s.display},
		{"DisplayMissing", s.displayMissing},
		{"Images", s.images},
		{"BuildsImages", s.buildImages},
	}
}

// The first process's exit code is the command's; a signal gives 128 + its number.
func (s *suite) exitCodes(t *testing.T) {
	for command, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill 9": 137, "kill 15": 143} {
		r := s.prepare(t, strings.Fields(command)...).start()
		if exit := r.wait(); !exit.Known || exit.Code != want || exit.OutOfMemory {
			t.Errorf("%s: %+v, want code %d", command, exit, want)
		}
		// Asked again, the answer is the same.
		if exit := r.wait(); exit.Code != want {
			t.Errorf("%s, asked again: %+v", command, exit)
		}
		r.remove()
		if exit := r.wait(); exit.Known {
			t.Errorf("%s, removed: %+v", command, exit)
		}
	}
}

// A command that is not there is told by its name, by Start or by the guest.
func (s *suite) commandNotFound(t *testing.T) {
	for _, command := range []string{"no-such-command", "/no/such/command"} {
		r := s.prepare(t)
		r.spec.Command = []string{command, "arg"}
		r.start()
		if exit := r.wait(); exit.Code != 127 {
			t.Errorf("%s: %+v, want code 127", command, exit)
		}
		s.within(t, "end of the guest", r.dir.Done())
		if res := r.dir.Result(); res.Started || !strings.Contains(res.Failed, command) {
			t.Errorf("%s: %+v", command, res)
		}
		r.remove()
	}
}

func (s *suite) within(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(s.Patience)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
		t.Fatalf("no %s within %v", what, s.Patience)
	}
}

func (s *suite) waitContext(t *testing.T) {
	r := s.prepare(t, "wait").start().ready()
	defer r.remove()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Driver.Wait(ctx, r.id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

// Names are unique among what there is, ended sandboxes too, and free again after Remove; of two starts at one time
// one wins.
func (s *suite) names(t *testing.T) {
	first := s.prepare(t, "exit", "0").start()
	first.wait()
	again := s.prepare(t, "exit", "0")
	again.spec.Name = first.spec.Name
	ctx, cancel := s.ctx(t)
	defer cancel()
	_, err := s.Driver.Start(ctx, again.spec)
	var spec *sandbox.SpecError
	var engine *sandbox.EngineError
	if err == nil || !strings.Contains(err.Error(), first.spec.Name) || !errors.As(err, &spec) && !errors.As(err, &engine) {
		t.Errorf("a taken name: %v", err)
	}
	first.remove()
	again.start()
	again.remove()

	a, b := s.prepare(t, "exit", "0"), s.prepare(t, "exit", "0")
	b.spec.Name = a.spec.Name
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for _, r := range []*run{a, b} {
		wg.Go(func() {
			if id, err := s.Driver.Start(ctx, r.spec); err == nil {
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("%d of two starts with one name won", len(ids))
	}
	for _, id := range ids {
		if err := s.Driver.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}
}

// List finds by all of the labels, what runs and what has ended.
func (s *suite) list(t *testing.T) {
	live, dead := s.prepare(t, "wait"), s.prepare(t, "exit", "0")
	live.spec.Labels["color"] = "red = very\nred"
	dead.spec.Labels["color"] = "blue"
	before := time.Now().Add(-2 * time.Second)
	live.start().ready()
	dead.start().wait()
	ctx, cancel := s.ctx(t)
	defer cancel()
	for _, c := range []struct {
		labels map[string]string
		want   []*run
	}{
		{map[string]string{ownerLabel: s.owner}, []*run{live, dead}},
		{map[string]string{ownerLabel: s.owner, "color": live.spec.Labels["color"]}, []*run{live}},
		{map[string]string{ownerLabel: s.owner, "color": "blue"}, []*run{dead}},
		{map[string]string{ownerLabel: s.owner, "color": ""}, nil},
		{map[string]string{ownerLabel: "x" + s.owner}, nil},
	} {
		list, err := s.Driver.List(ctx, c.labels)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]sandbox.Sandbox{}
		for _, b := range list {
			found[b.ID] = b
		}
		if len(list) != len(c.want) {
			t.Errorf("%v: %d sandboxes, want %d", c.labels, len(list), len(c.want))
		}
		for _, r := range c.want {
			b := found[r.id]
			if b.Name != r.spec.Name || b.Running != (r == live) || b.Labels[sandbox.LabelRun] != r.spec.Labels[sandbox.LabelRun] ||
				b.Started.Before(before) || b.Started.After(time.Now().Add(2*time.Second)) {
				t.Errorf("%v: %+v, want %s", c.labels, b, r.spec.Name)
			}
		}
	}
	live.remove()
	dead.remove()
}

// stop stops a run and returns how long it took.
func (r *run) stop(grace time.Duration) time.Duration {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	began := time.Now()
	if err := r.s.Driver.Stop(ctx, r.id, grace); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	return time.Since(began)
}

// What obeys TERM is stopped at once, however long the grace is.
func (s *suite) stopTerm(t *testing.T) {
	r := s.prepare(t, "wait").start().ready()
	defer r.remove()
	if took := r.stop(time.Minute); took > 10*time.Second+s.Slack {
		t.Errorf("took %v", took)
	}
	if pids := marked(t, r.mark); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
	if exit := r.wait(); exit.Code != 143 {
		t.Errorf("%+v, want code 143", exit)
	}
}

// What ignores TERM is killed after the grace, with a grandchild that left its session and its parent, and the call
// returns when nothing is left.
func (s *suite) stopStubborn(t *testing.T) {
	r := s.prepare(t, "stubborn").start().ready().ready()
	defer r.remove()
	if pids := marked(t, r.mark); len(pids) < 2 {
		t.Fatalf("%d processes are there, want the command and its grandchild", len(pids))
	}
	const grace = time.Second
	if took := r.stop(grace); took < grace || took > grace+s.Slack {
		t.Errorf("took %v, want between %v and %v", took, grace, grace+s.Slack)
	}
	if pids := marked(t, r.mark); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
	if exit := r.wait(); exit.Code != 137 {
		t.Errorf("%+v, want code 137", exit)
	}
}

func (s *suite) stopGone(t *testing.T) {
	r := s.prepare(t, "exit", "3").start()
	r.wait()
	r.stop(time.Minute)
	if exit := r.wait(); exit.Code != 3 {
		t.Errorf("stopped after its end: %+v", exit)
	}
	r.remove()
	r.stop(time.Minute)
	r.id = "no-such-sandbox"
	r.stop(time.Minute)
	r.remove()
}

// Remove kills what lives, leaves nothing, and is no error on what is gone.
func (s *suite) removeTwice(t *testing.T) {
	r := s.prepare(t, "stubborn").start().ready().ready()
	waited := make(chan error, 1)
	go func() {
		ctx, cancel := s.ctx(t)
		defer cancel()
		_, err := s.Driver.Wait(ctx, r.id) // returns, whether it saw the end or not
		waited <- err
	}()
	r.remove()
	if pids := marked(t, r.mark); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
	if err := <-waited; err != nil {
		t.Errorf("a Wait at that time: %v", err)
	}
	r.remove()
	if exit := r.wait(); exit.Known {
		t.Errorf("%+v of what is gone", exit)
	}
	ctx, cancel := s.ctx(t)
	defer cancel()
	if _, err := s.Driver.Stats(ctx, r.id); err == nil {
		t.Error("stats of what is gone")
	}
}

// Eight starts at one time all work.
func (s *suite) concurrent(t *testing.T) {
	var runs []*run
	for range 8 {
		runs = append(runs, s.prepare(t, "wait"))
	}
	ctx, cancel := s.ctx(t)
	defer cancel()
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(func() {
			id, err := s.Driver.Start(ctx, r.spec)
			if err != nil {
				t.Error(err)
			}
			r.id = id
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, r := range runs {
		if r.id == "" {
			continue
		}
		r.ready()
		ids[r.id] = true
		wg.Go(r.remove)
	}
	wg.Wait()
	if len(ids) != len(runs) {
		t.Errorf("%d ids of %d starts", len(ids), len(runs))
	}
}

func (s *suite) stats(t *testing.T) {
	r := s.prepare(t, "wait").start().ready()
	defer r.remove()
	ctx, cancel := s.ctx(t)
	defer cancel()
	st, err := s.Driver.Stats(ctx, r.id)
	if err != nil {
		t.Fatal(err)
	}
	if st.Processes < 2 || st.MemoryBytes < 100<<10 || st.MemoryBytes > 1<<30 || st.CPUTime < 0 {
		t.Errorf("%+v of the guest and a small program", st)
	}
}
