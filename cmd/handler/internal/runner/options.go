package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/policy"
)

// Exit statuses that an Outcome names.
const (
	StatusDone    = 0 // the turn came to its end
	StatusFailed  = 1 // it did not: an error, a limit, a cancel
	StatusRefused = 3 // policy refused the session or the prompt
)

// ErrInterrupted is what Run gives when Ctrl-C came twice, or the agent did not end in time after the first.
var ErrInterrupted = errors.New("interrupted before the agent ended its turn")

// Options are what Run needs besides the connection.
type Options struct {
	Prompt string   // required
	Images []string // files to send with the prompt: png, jpeg, webp or gif, 20 MB each, 23 MB in all
	Cwd    string   // absolute; of the session

	// Session is the agent's id of a session to go on with; "" begins one.
	Session string

	Agent string // its name, for questions and the first event; "agent" if empty
	Run   string // the run's id; "run" if empty

	Yes        bool // allow once what the agent asks; never always
	ReadOnly   bool // allow once what only reads, refuse the rest; goes before Yes
	Unattended bool // refuse what neither Yes nor ReadOnly decides, instead of asking
	Terminal   bool // there is a person at Stdin and Stderr; without one and without the three above: Unattended

	JSON  bool // NDJSON on Stdout, see the package's documentation
	Color bool // Stdout takes colours (the caller has looked at NO_COLOR)
	Width int  // columns of Stdout; 0 is 100

	// Stdin is read only when a question is asked. A read that is going on when Run returns goes on until Stdin
	// is closed or gives a line.
	Stdin  io.Reader
	Stdout io.Writer // what the run gives; nil throws it away
	Stderr io.Writer // questions, remarks and why the run failed; nil throws them away

	// Kept gives the artifact that a picture which the agent has just sent is kept as, by its SHA-256 in hexadecimal, and
	// a file that holds it; ErrNotKept where it is not. Nil shows no pictures.
	Kept func(ctx context.Context, sha256 string) (id, path string, err error)
	Home string // shown as ~ in printed paths; if empty, paths are shown whole

	// LoginHint says what to type when the agent wants a login first; "" for nothing.
	LoginHint string

	// Watch calls each for what Handler itself asks about the run, until ctx is done: with a Terminal, and not
	// Unattended, it is asked there. Answer answers. Both nil if there is nothing to watch. Yes and ReadOnly answer the
	// agent's questions and never these.
	Watch  func(ctx context.Context, each func(types.ApprovalEvent) error) error
	Answer func(ctx context.Context, id string, a types.ApprovalAnswer) (types.ApprovalDone, error)
	// Reply answers a question of the agent's, of a session whose client is handlerd: of a Viewer alone.
	Reply func(ctx context.Context, a types.QuestionAnswer) error
	By    string // who answers, for the audit; "terminal of handler run" if empty
	// Picture shows the picture of a question of Handler's own: what it gives is printed as it is, before the question.
	// nil shows none.
	Picture func(ctx context.Context, a types.Approval) string

	// Interrupt gives the person's Ctrl-C. The first cancels the turn, the second ends Run; nil if there is none.
	Interrupt <-chan os.Signal
	// Summary gives more parts of the last line, such as "2 refused by policy"; nil for none.
	Summary func(Outcome) []string

	StartTimeout time.Duration    // for initialize and session/new; 0 is two minutes
	CancelGrace  time.Duration    // from the first Ctrl-C to ErrInterrupted; 0 is ten seconds
	Now          func() time.Time // nil is time.Now
}

// An Outcome is how a run ended.
type Outcome struct {
	Status     int    // the exit status
	StopReason string // of the turn; empty if it did not end
	Session    string
	Elapsed    time.Duration
	ToolCalls  int
	Refused    int // questions that were answered with a refusal
	Images     []Image
	Verdict    *policy.Verdict // what policy refused; nil if it did not
}

// ErrNotKept is what Options.Kept gives for a picture that handlerd did not keep.
var ErrNotKept = errors.New("the picture was not kept")

// An Image is a picture that is kept.
type Image struct {
	ID        string // of the artifact
	Path      string
	MediaType string
	Bytes     int
	SHA256    string // hexadecimal
}

// complete fills in the defaults and refuses what cannot be run.
func (o *Options) complete() error {
	for _, w := range []*io.Writer{&o.Stdout, &o.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
	if o.Prompt == "" && len(o.Images) == 0 {
		return errors.New("the prompt is empty: say what the agent is to do")
	}
	if o.Agent == "" {
		o.Agent = "agent"
	}
	if o.By == "" {
		o.By = "terminal of handler run"
	}
	if o.Run == "" {
		o.Run = "run"
	}
	if o.Width <= 0 {
		o.Width = 100
	}
	o.Width = max(o.Width, 40)
	if o.StartTimeout == 0 {
		o.StartTimeout = 2 * time.Minute
	}
	if o.CancelGrace == 0 {
		o.CancelGrace = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}
