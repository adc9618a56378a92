package approvals

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/policy"
)

// Bounds of what a question about the browser shows.
const (
	MaxShownURL      = 2000 // characters of an address
	MaxShownName     = 200  // of an element's name and of a page's title
	MaxShownValue    = 600  // of a value
	MaxShownElements = 50   // elements, and as many values and targets each

	maxRole    = 30 // letters of a role or a tag
	maxAction  = 100
	shortName  = 60 // characters of a name in the question's one line
	shortShown = 3  // elements there
)

// Browser is what is asked of the guarded browser, as it is known: all texts but Tool come from pages and agents.
type Browser struct {
	Run, Agent, Session string
	Tool                string // browser_click
	Action              string // in words: "click"
	Visit               bool   // whether to go to Targets[0], which is another origin
	Pages               []string
	Title, Says, Frame  string // Says is the text of a dialog; Frame is "" for the page's own
	Targets             []string
	Elements            []types.BrowserElement
	Values              []string // secrets masked
	Digest              string   // SHA-256 of the exact arguments, in hex
	Picture             []byte   // PNG or JPEG; nil for none
}

// Question puts it as a question: bounded, of one line each, with nothing in it that could pass for Handler's own words.
// It is answered once and for once, until the caller sets Scopes.
func (b Browser) Question() Question {
	view := &types.BrowserApproval{
		Tool: Plain(b.Tool, maxAction), Action: Plain(b.Action, maxAction), Visit: b.Visit, Title: Plain(b.Title, MaxShownName), Says: Plain(b.Says, MaxShownValue),
		Pages: []types.BrowserPlace{}, Targets: []types.BrowserPlace{}, Elements: []types.BrowserElement{}, Values: []string{},
	}
	if raw, err := hex.DecodeString(b.Digest); err == nil {
		view.Digest = hex.EncodeToString(raw)[:min(2*len(raw), 64)]
	}
	room := func(n int) int {
		view.More += max(0, n-MaxShownElements)
		return min(n, MaxShownElements)
	}
	for _, p := range b.Pages[:room(len(b.Pages))] {
		view.Pages = append(view.Pages, place(p))
	}
	for _, t := range b.Targets[:room(len(b.Targets))] {
		view.Targets = append(view.Targets, place(t))
	}
	for _, e := range b.Elements[:room(len(b.Elements))] {
		view.Elements = append(view.Elements, types.BrowserElement{Role: word(e.Role), Name: Plain(e.Name, MaxShownName)})
	}
	for _, v := range b.Values[:room(len(b.Values))] {
		view.Values = append(view.Values, Plain(v, MaxShownValue))
	}
	if b.Frame != "" {
		frame := place(b.Frame)
		view.Frame = &frame
	}
	q := Question{
		Kind: types.ApprovalBrowser, Run: b.Run, Agent: b.Agent, Session: b.Session, Expiry: BrowserExpiry, Browser: view,
		Scopes: []string{types.ScopeOnce},
	}
	if png, width, height, err := small(b.Picture); err == nil {
		q.Picture, view.Picture = png, &types.BrowserPicture{Width: width, Height: height, Bytes: len(png)}
	}
	q.words(view)
	return q
}

// words puts the question into one line, and into what of it the audit log has.
func (q *Question) words(b *types.BrowserApproval) {
	if b.Visit && len(b.Targets) > 0 {
		site := b.Targets[0].Site
		q.Subject = b.Tool + " " + site
		q.Text = fmt.Sprintf("%s wants to go to %s in the browser", q.Agent, site)
		q.Log, q.Detail = "may it go there", "once: for as long as this browser lives"
		return
	}
	var sites []string
	for _, p := range b.Pages {
		if len(sites) == 0 || sites[len(sites)-1] != p.Site {
			sites = append(sites, p.Site)
		}
	}
	site := "a page"
	switch {
	case len(sites) == 1:
		site = sites[0]
	case len(sites) > 1:
		site = fmt.Sprintf("one of %d tabs (%s, …)", len(b.Pages), sites[0])
	}
	q.Subject = b.Tool + " on " + site
	q.Text = fmt.Sprintf("%s wants to act on %s: %s", q.Agent, site, act(b))
	q.Log = b.Action + roles(b.Elements)
	q.Detail = "this, once: if anything of it has changed when you answer, it is not done"
}

// act says in a few words what is done to what: `click "Place order" (button)`.
func act(b *types.BrowserApproval) string {
	var all []string
	for _, e := range b.Elements[:min(len(b.Elements), shortShown)] {
		all = append(all, Element(types.BrowserElement{Role: e.Role, Name: Plain(e.Name, shortName)}))
	}
	if more := len(b.Elements) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	switch len(all) {
	case 0:
		return b.Action
	case 1:
		return b.Action + " " + all[0]
	}
	return b.Action + ": " + strings.Join(all, ", ")
}

// roles are what of elements goes into the audit log: no page's words.
func roles(all []types.BrowserElement) string {
	switch len(all) {
	case 0:
		return ""
	case 1:
		return " (" + all[0].Role + ")"
	}
	return fmt.Sprintf(" (%d elements)", len(all))
}

// Element names one, its name in quotes that it cannot close: `"Place order" (button)`.
func Element(e types.BrowserElement) string {
	if e.Name == "" {
		return "(" + e.Role + " without a name)"
	}
	return Quote(e.Name) + " (" + e.Role + ")"
}

// word is a role or a tag: ASCII letters and "-" of a bounded number, "element" for anything else.
func word(s string) string {
	s = strings.ToLower(s)
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return "element"
		}
	}
	if s == "" || len(s) > maxRole {
		return "element"
	}
	return s
}

// place is an address as it is shown: its origin in the spelling that is judged, and all of it without a user name.
func place(raw string) types.BrowserPlace {
	inner := strings.TrimPrefix(raw, "blob:")
	u, err := url.Parse(inner)
	shown := types.BrowserPlace{URL: Plain(raw, MaxShownURL)}
	switch {
	case raw == "" || strings.HasPrefix(strings.ToLower(raw), "about:"):
		shown.Site = "a blank page"
	case strings.HasPrefix(strings.ToLower(raw), "data:"):
		shown.Site, shown.URL = "a page without a site", Plain(raw, 100)
	case strings.HasPrefix(strings.ToLower(raw), "javascript:"):
		shown.Site, shown.URL = "a script of the page", Plain(raw, 100)
	case err != nil || u.Host == "":
		shown.Site = "an address that cannot be read"
	default:
		host, port, err := policy.ParseURL(strings.ToLower(u.Scheme) + "://" + u.Host)
		if err != nil {
			shown.Site = "an address that cannot be read"
			return shown
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if usual := map[string]uint16{"http": 80, "ws": 80, "https": 443, "wss": 443}[u.Scheme]; port != usual {
			host = fmt.Sprintf("%s:%d", host, port)
		}
		shown.Site = u.Scheme + "://" + host
		u.User, u.Host = nil, host
		shown.URL = Plain(raw[:len(raw)-len(inner)]+u.String(), MaxShownURL)
	}
	return shown
}

// Foreign says whether a site's name is written in letters other than ASCII's, which its xn-- form stands for.
func Foreign(site string) bool {
	_, host, _ := strings.Cut(site, "://")
	return strings.HasPrefix(host, "xn--") || strings.Contains(host, ".xn--")
}
