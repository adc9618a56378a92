package browser

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of searching.
const (
	MaxQuery   = 500 // bytes of what is searched for
	MaxResults = 20  // results of one page
)

// A hit is one result of a search, as its page says it.
type hit struct {
	Title string `json:"title"`
	URL   string `json:"url"`
	Text  string `json:"text"`
}

// found is what a result page has.
type found struct {
	Hits   []hit       `json:"hits"`
	Status int         `json:"status"` // of HTTP; 0 where it is not known
	Says   string      `json:"says"`   // what looks like a challenge; "" for nothing
	At     whereabouts `json:"at"`
}

// runSearch opens a public result page in the current tab, as a person does, and reads the results out (F.1). It
// answers no challenge: whoever searches is told of it.
func runSearch(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Query string `json:"query"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	words := strings.Join(strings.Fields(in.Query), " ")
	if words == "" || len(words) > MaxQuery {
		return nil, refuse("F.1", fmt.Sprintf("query has %d bytes; it takes 1 to %d", len(words), MaxQuery), "")
	}
	if err := u.checkText("query", words, MaxQuery); err != nil {
		return nil, err
	}
	if u.policy.Search == "" {
		return nil, refuse("F.1", "this agent has no page to search with", "Go to one with browser_navigate")
	}
	to := strings.Replace(u.policy.Search, "%s", url.QueryEscape(words), 1)
	err := u.goTo(ctx, to, func(ctx context.Context) (answer, error) {
		return u.navigate(ctx, to)
	})
	if err != nil {
		return nil, err
	}
	var f found
	if err := u.probe(ctx, "hits", map[string]any{"most": MaxResults, "frames": maxFrames}, &f); err != nil {
		return nil, u.explainModal(err)
	}
	if f.At.URL == "" {
		return nil, refuse("F.5", "where the page is cannot be said, and it is not read for that", "Try again")
	}
	if err := u.land(ctx, f.At.urls()); err != nil {
		return nil, err
	}
	return u.results(ctx, f)
}

// results is what a search found, as the agent reads it.
func (u *use) results(ctx context.Context, f found) (*mcp.CallToolResult, error) {
	const other = "Search elsewhere by browser_navigate, or tell your person: another result page is a setting of the agent, [browser] search"
	hits := f.Hits[:min(len(f.Hits), MaxResults)]
	refused := f.Status == 202 || f.Status >= 400 // 202 is how DuckDuckGo answers who it takes for a program
	if len(hits) == 0 {
		switch {
		case f.Says != "":
			return nil, refuse("F.1", "the search page asks whether a person is there ("+shorten(u.s.mask(f.Says), 100)+"), and that is never answered for one", other)
		case refused:
			return nil, refuse("F.1", fmt.Sprintf("the search page answers with status %d and no results", f.Status), other)
		}
		u.notes = append(u.notes, "No results were recognised. The page is open: browser_snapshot reads what it says.")
		return u.fence(ctx, f.At.URL, "place", f.At.text(), false), nil
	}
	var out strings.Builder
	for i, h := range hits {
		fmt.Fprintf(&out, "%d. %s\n   %s\n", i+1, shorten(h.Title, 300), shorten(h.URL, 2000))
		if text := shorten(h.Text, 600); text != "" {
			out.WriteString("   " + text + "\n")
		}
	}
	return u.fence(ctx, f.At.URL, "search results", out.String(), false), nil
}
