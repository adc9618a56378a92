package runner

import (
	"fmt"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
)

// Details are the lines below a question of Handler's own, safe to print. What a page made up is in quotes, which it
// cannot close, and behind Handler's own word for what it is; sites stand apart, in the spelling that is judged.
func Details(a types.Approval) []string {
	b := a.Browser
	if b == nil {
		return []string{Line(a.Detail)}
	}
	var lines []string
	add := func(what, text string) { lines = append(lines, fmt.Sprintf("%-8s  %s", what, Line(text))) }
	for _, p := range b.Pages {
		add("site", site(p.Site))
		add("page", p.URL)
	}
	if b.Title != "" {
		add("titled", approvals.Quote(b.Title))
	}
	if b.Frame != nil {
		add("in frame", site(b.Frame.Site))
		add("", b.Frame.URL)
	}
	for i, e := range b.Elements {
		add("element", approvals.Element(e))
		if i < len(b.Values) && len(b.Values) == len(b.Elements) {
			add("value", approvals.Quote(b.Values[i]))
		}
	}
	if len(b.Values) != len(b.Elements) {
		for _, v := range b.Values {
			add("value", approvals.Quote(v))
		}
	}
	if b.Says != "" {
		add("it says", approvals.Quote(b.Says))
	}
	to := "leads to"
	if b.Visit {
		to = "goes to"
	}
	for _, t := range b.Targets {
		add(to, site(t.Site))
		add("", t.URL)
	}
	if b.More > 0 {
		add("", fmt.Sprintf("and %d more of these, which are not shown", b.More))
	}
	return append(lines, Line(a.Detail))
}

// site is a site with a word of warning where its name is in other letters.
func site(s string) string {
	if approvals.Foreign(s) {
		return s + "  (xn--… stands for other letters than it may look like)"
	}
	return s
}

// indented puts lines below each other, behind an indent.
func indented(lines []string, indent string) string {
	return indent + strings.Join(lines, "\n"+indent)
}
