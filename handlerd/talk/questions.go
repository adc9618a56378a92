package talk

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// MaxQuestions bounds the questions of one session that wait for an answer; the agent gets an error for one more.
const MaxQuestions = 64

// MaxAnswerBytes bounds what a form is answered with.
const MaxAnswerBytes = 256 << 10

// A question is a request of the agent's that waits for the person.
type question struct {
	method  string
	options []string        // ids, of a permission request
	schema  json.RawMessage // of a form; nil where an address is to be opened
	answer  chan any        // takes one answer
}

// elicitation is an elicitation/create, as far as it is read.
type elicitation struct {
	SessionID string          `json:"sessionId"`
	Mode      string          `json:"mode"`
	Schema    json.RawMessage `json:"requestedSchema"`
	URL       string          `json:"url"`
}

// elicitationResult answers it.
type elicitationResult struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content,omitempty"`
}

// ask lets a request of the agent's wait for its answer.
func (c *conversation) ask(req *jsonrpc.Request) {
	q, err := c.read(req)
	if err != nil {
		req.Refuse(err)
		return
	}
	id := types.QuestionID(c.run, req.ID)
	c.mu.Lock()
	c.questions[id] = q
	close(c.asked)
	c.asked = make(chan struct{})
	late := c.cancelled
	c.mu.Unlock()
	if late {
		c.withdraw()
	}
	req.Go(func(ctx context.Context) (any, error) {
		defer func() {
			c.mu.Lock()
			delete(c.questions, id)
			c.mu.Unlock()
		}()
		select {
		case a := <-q.answer:
			return a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// read takes a question apart, as far as its answer is to fit it.
func (c *conversation) read(req *jsonrpc.Request) (*question, error) {
	q := &question{method: req.Method, answer: make(chan any, 1)}
	if req.Notification() {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s without an id asks nothing", req.Method)
	}
	if req.Method == jsonrpc.MethodRequestPermission {
		var p jsonrpc.PermissionParams
		if err := req.Decode(&p); err != nil {
			return nil, err
		}
		for _, o := range p.Options {
			q.options = append(q.options, o.OptionID)
		}
		return q, c.checkSession(p.SessionID)
	}
	var p elicitation
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	if err := c.checkSession(p.SessionID); err != nil {
		return nil, err
	}
	if p.Mode == "url" {
		if _, plain := acpclient.PlainURL(p.URL); !plain {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "a person is asked to open plain https addresses only")
		}
		return q, nil
	}
	if _, err := acpclient.ParseForm(p.Schema); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%v", err)
	}
	q.schema = slices.Clone(p.Schema)
	return q, nil
}

// checkSession refuses a question that would be shown nowhere.
func (c *conversation) checkSession(session string) error {
	if session != c.session() || session == "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "there is no session %q here whose person could be asked", clip(session))
	}
	return nil
}

// Answer answers a question of the agent's for the person. Errors are *fault.Fault: NotFound where it waits no more.
func (t *Talk) Answer(ctx context.Context, id string, a types.QuestionAnswer) error {
	s, c, err := t.mine(ctx, id)
	if err != nil {
		return err
	}
	c.awaitQuestion(ctx, a.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.questions[a.ID]
	if q == nil {
		return fault.New(fault.NotFound, "", "the question is not open any more: it was answered, withdrawn, or its turn has ended")
	}
	answer, err := q.result(a)
	if err != nil {
		return err
	}
	delete(c.questions, a.ID) // one answer a question
	if a.By != "" {
		c.of.AnsweredBy(a.ID, a.By)
	}
	q.answer <- answer
	t.log.Debug("a question was answered", "session", s.ID, "run", c.run, "by", clip(a.By))
	return nil
}

// questionPause is how long an answer waits for its question: what is written down of it is a moment ahead of us.
const questionPause = time.Second

// awaitQuestion returns when a question is open, or will not be.
func (c *conversation) awaitQuestion(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, questionPause)
	defer cancel()
	for {
		c.mu.Lock()
		open, more := c.questions[id] != nil, c.asked
		c.mu.Unlock()
		if open {
			return
		}
		select {
		case <-more:
		case <-c.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// result makes the answer to a question, as ACP wants it.
func (q *question) result(a types.QuestionAnswer) (any, error) {
	given := 0
	for _, set := range []bool{a.Option != "", a.Cancel, len(a.Content) > 0} {
		if set {
			given++
		}
	}
	if given != 1 {
		return nil, fault.New(fault.Usage, "", "an answer has exactly one of option, cancel and content")
	}
	permission := q.method == jsonrpc.MethodRequestPermission
	switch {
	case permission && a.Cancel:
		return jsonrpc.Cancelled(), nil
	case permission && a.Option != "":
		if !slices.Contains(q.options, a.Option) {
			return nil, fault.New(fault.Usage, "", "the question has no option %q", clip(a.Option))
		}
		return jsonrpc.Selected(a.Option), nil
	case permission:
		return nil, fault.New(fault.Usage, "", "a permission request is answered with one of its options")
	case a.Cancel:
		return elicitationResult{Action: "cancel"}, nil
	case a.Option == types.OptionDecline:
		return elicitationResult{Action: "decline"}, nil
	case a.Option != "":
		return nil, fault.New(fault.Usage, "", "an elicitation is answered with content, or declined with option %q", types.OptionDecline)
	case len(a.Content) > MaxAnswerBytes:
		return nil, fault.New(fault.Refused, "", "the answer has %d bytes; at most %d are taken", len(a.Content), MaxAnswerBytes)
	case q.schema == nil:
		return elicitationResult{Action: "accept"}, nil
	}
	if err := acpclient.CheckForm(q.schema, a.Content); err != nil {
		return nil, fault.New(fault.Usage, "", "the answer does not fit the form: %v", err)
	}
	return elicitationResult{Action: "accept", Content: a.Content}, nil
}

// withdraw answers every open question with neither yes nor no, as a client does that cancels a turn (ACP).
func (c *conversation) withdraw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, q := range c.questions {
		answer, err := q.result(types.QuestionAnswer{Cancel: true})
		if err == nil {
			delete(c.questions, id)
			q.answer <- answer
		}
	}
}
