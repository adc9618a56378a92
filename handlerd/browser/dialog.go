package browser

import (
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// runDialog answers a dialog of the page.
func runDialog(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Accept     bool    `json:"accept"`
		PromptText *string `json:"promptText"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	urls, text, err := u.waiting(ctx, "dialog")
	if err != nil {
		return nil, err
	}
	args, verb := map[string]any{"accept": in.Accept}, "dismiss the dialog"
	a := action{tool: "browser_handle_dialog", args: args}
	if in.Accept {
		verb = "accept the dialog"
	}
	if in.PromptText != nil {
		if err := u.checkText("promptText", *in.PromptText, maxTyped); err != nil {
			return nil, err
		}
		if namesSecret(text) {
			return nil, refuse("F.5", "the dialog asks for a password or a code, and nothing is ever typed there", "Dismiss it with accept false; your person logs in themselves")
		}
		args["promptText"], a.values = *in.PromptText, []string{u.s.shown(*in.PromptText)}
	}
	a.verb, a.says = verb, shorten(u.s.mask(text), 300)
	return u.answer(ctx, a, "dialog", urls, text)
}

// waiting gives what the page waits for an answer to, which is to be of a kind, and where the browser is meanwhile: its
// tabs, as far as they can be known while nothing runs in them.
func (u *use) waiting(ctx context.Context, kind string) (urls []string, text string, err error) {
	_, err = u.look(ctx, false)
	var modal *modalError
	switch {
	case err == nil:
		hint := "Read it with browser_snapshot"
		if kind != "dialog" {
			hint += ", click what chooses a file, and call this then"
		}
		return nil, "", refuse("F.1", "the page waits for no "+kind, hint)
	case !errors.As(err, &modal):
		return nil, "", err
	case (kind == "dialog") == modal.files():
		return nil, "", u.explainModal(err)
	}
	a, err := u.upstream(ctx, "browser_tabs", map[string]any{"action": "list"}, OpTime)
	if err != nil {
		return nil, "", err
	}
	return linkTargets(section(a.text, "Result")), modal.plain(), nil
}

// answer answers what the page waits for: with an approval, where any tab is external.
func (u *use) answer(ctx context.Context, a action, kind string, urls []string, text string) (*mcp.CallToolResult, error) {
	external := len(urls) == 0
	for _, url := range urls {
		external = external || u.s.place(url).external(u.policy.Network)
	}
	f := facts{}
	if len(urls) > 0 {
		f.URL = urls[len(urls)-1]
	}
	if external {
		if u.policy.Unattended {
			return nil, refuse("F.4", "answering it needs an approval, and "+unattended, "Leave it for your person")
		}
		q := u.newQuestion(a.verb, urls...)
		q.Values, q.Says = a.values, a.says
		if kind != "dialog" { // whose it is cannot be found out while it is open
			q.Targets = u.s.frames
		}
		if err := u.ask(ctx, q); err != nil {
			return nil, err
		}
		p, err := u.s.grant()
		if err != nil {
			return nil, err
		}
		u.policy = p
		again, now, err := u.waiting(ctx, kind)
		if err != nil {
			return nil, err
		}
		if p.ReadOnly || now != text || strings.Join(again, " ") != strings.Join(urls, " ") {
			return nil, refuse("F.4", "the page has changed while your person was asked, and their answer was for what it was. Nothing was done", "Look again with browser_tabs (list)")
		}
	}
	u.s.snapshot = nil
	got, err := u.upstream(ctx, a.tool, a.args, OpTime)
	if err != nil {
		return nil, err
	}
	return u.acted(ctx, a.verb, got, f)
}
