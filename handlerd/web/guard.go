package web

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"crypto/subtle"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/view"
)

const (
	apiPrefix  = "/api"
	loginPath  = "/login"
	maxLogin   = 1 << 10 // bytes of the body of a login
	maxCookies = 8       // of our name that are looked at: others under localhost can add some of theirs
)

// A refusal is why a request gets nothing.
type refusal struct {
	status int
	fault  *fault.Fault
}

func refused(status int, hint, text string) *refusal {
	return &refusal{status, &fault.Fault{Kind: fault.Refused, Text: text, Hint: hint}}
}

// A guard answers the page's own host while the door is open.
type guard struct {
	d    *Door
	o    *opened
	next *http.ServeMux
}

// handler is everything behind the open door's listeners. The Door's mu is held.
func (d *Door) handler(o *opened) http.Handler {
	g := &guard{d: d, o: o, next: http.NewServeMux()}
	g.next.HandleFunc("GET "+apiPrefix+types.PathMe, g.me)
	g.next.HandleFunc("POST "+apiPrefix+types.PathLogout, g.logout)
	through := http.StripPrefix(apiPrefix, d.api)
	for _, r := range Routes() {
		if r.Closed == "" {
			method, path, _ := strings.Cut(r.Pattern, " ")
			g.next.Handle(method+" "+apiPrefix+path, through)
		}
	}
	g.next.HandleFunc(apiPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		answerFault(w, http.StatusNotFound, fault.New(fault.NotFound, "", "the page's API has no %s %s", r.Method, r.URL.Path))
	})
	g.next.Handle("/", d.pages)
	return g
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	patient := newPatientWriter(w)
	defer patient.end()
	if f := g.d.forwards.at(r.Host); f != nil {
		f.ServeHTTP(patient, r)
		return
	}
	setHeaders(patient.Header(), g.o.port)
	if no := g.admit(r); no != nil {
		g.refuse(patient, r, no)
		return
	}
	if isLogin(r.URL.Path) {
		g.login(patient, r)
		return
	}
	value, ok := g.cookie(r)
	if !ok {
		g.stranger(patient, r)
		return
	}
	if no := checkToken(r, value); no != nil {
		g.refuse(patient, r, no)
		return
	}
	// A ticket for a view is its login's alone.
	r = r.WithContext(view.WithLogin(r.Context(), tokenOf(value)))
	body := limitBody(patient, r)
	defer body()
	g.next.ServeHTTP(patient, r)
}

// admit says whether a request may be one of the page's own, whoever sends it; nil if so.
func (g *guard) admit(r *http.Request) *refusal {
	if no := checkForm(r); no != nil {
		return no
	}
	if r.Host != g.o.host() {
		return refused(http.StatusMisdirectedRequest, "open "+g.o.origin()+"/", "this is Handler's page, which answers to its own name only")
	}
	if no := checkOrigin(r, g.o.origin()); no != nil {
		return no
	}
	return checkFetch(r)
}

// checkForm refuses what no page of ours sends: other forms of a request's target, paths that mean something else once
// they are cleaned, methods that nothing here has, upgrades where there is none.
func checkForm(r *http.Request) *refusal {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return refused(http.StatusMethodNotAllowed, "", "nothing here answers "+cut(r.Method, 20))
	}
	if !plainPath(r.RequestURI, r.URL.Path, r.URL.EscapedPath()) {
		return refused(http.StatusBadRequest, "", "this is no plain path")
	}
	if _, ok := r.Header["Upgrade"]; ok && !(r.Method == http.MethodGet && upgrades()["GET "+strings.TrimPrefix(r.URL.Path, apiPrefix)]) {
		return refused(http.StatusBadRequest, "", "nothing here can be upgraded to")
	}
	return nil
}

// plainPath tells whether a request's target is a path that means the same to whoever reads it.
func plainPath(uri, decoded, escaped string) bool {
	if !strings.HasPrefix(uri, "/") || !strings.HasPrefix(decoded, "/") {
		return false
	}
	if strings.ContainsAny(decoded, "\\\x00") || strings.Contains(strings.ToLower(escaped), "%2f") {
		return false
	}
	clean := path.Clean(decoded)
	return decoded == clean || clean != "/" && decoded == clean+"/"
}

func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// checkOrigin compares the Origin with the page's own. A browser sends none with plain reading of the same origin, and
// always one with what changes something and with a WebSocket.
func checkOrigin(r *http.Request, own string) *refusal {
	origins := r.Header.Values("Origin")
	_, upgrade := r.Header["Upgrade"]
	switch {
	case len(origins) == 1 && origins[0] == own:
		return nil
	case len(origins) == 0 && reads(r.Method) && !upgrade:
		return nil
	}
	return refused(http.StatusForbidden, "", "this request does not come from Handler's page")
}

// checkFetch holds against it what the browser says of where a request comes from and what it is for; programs that are
// no browsers say nothing.
func checkFetch(r *http.Request) *refusal {
	site, dest := r.Header.Values("Sec-Fetch-Site"), r.Header.Values("Sec-Fetch-Dest")
	for _, d := range dest {
		if slices.Contains([]string{"iframe", "frame", "embed", "object", "fencedframe"}, d) {
			return refused(http.StatusForbidden, "", "Handler's page is shown in no other page")
		}
	}
	switch {
	case len(site) == 0, len(site) == 1 && site[0] == "same-origin":
		return nil
	case len(site) == 1 && site[0] == "none" && reads(r.Method): // typed, or a bookmark
		return nil
	case reads(r.Method) && !underAPI(r.URL.Path) && slices.Equal(dest, []string{"document"}):
		return nil // a link that leads here shows the page, and a strict cookie does not come with it
	}
	return refused(http.StatusForbidden, "", "this request comes from another page than Handler's")
}

func underAPI(path string) bool { return path == apiPrefix || strings.HasPrefix(path, apiPrefix+"/") }

// cookieName has the port in it: cookies know no ports, and a browser may know two doors, one of them by ssh.
func (o *opened) cookieName() string {
	return "handler_" + o.origin()[strings.LastIndexByte(o.origin(), ':')+1:]
}

// cookie gives the value of the cookie that is good.
func (g *guard) cookie(r *http.Request) (string, bool) {
	for _, value := range g.cookies(r) {
		_, ok, err := g.d.logins.known(value)
		if err != nil {
			g.d.log.Warn("when a browser was seen was not written down", "error", err)
		}
		if ok {
			return value, true
		}
	}
	return "", false
}

func (g *guard) cookies(r *http.Request) []string {
	var values []string
	for _, c := range r.CookiesNamed(g.o.cookieName()) {
		if len(values) < maxCookies {
			values = append(values, c.Value)
		}
	}
	return values
}

// checkToken wants the token with whatever may change something.
func checkToken(r *http.Request, cookie string) *refusal {
	if reads(r.Method) {
		return nil
	}
	got := r.Header.Values(types.HeaderToken)
	if len(got) == 1 && subtle.ConstantTimeCompare([]byte(got[0]), []byte(tokenOf(cookie))) == 1 {
		return nil
	}
	return refused(http.StatusForbidden, "load the page again", "the request lacks the page's token")
}

// stranger answers who has no cookie: a browser that opens the page is told how to get in, everything else nothing.
func (g *guard) stranger(w http.ResponseWriter, r *http.Request) {
	if reads(r.Method) && !underAPI(r.URL.Path) && strings.Contains(r.Header.Get("Accept"), "text/html") {
		g.d.pages.enter(w, r, http.StatusUnauthorized)
		return
	}
	answerFault(w, http.StatusUnauthorized, errStranger)
}

var errStranger = fault.New(fault.Refused, "in a terminal: handler web", "you are not logged in")

func isLogin(path string) bool {
	return path == loginPath || path == loginPath+".js" || path == loginPath+".css"
}

// login serves the page that exchanges a link, and exchanges it.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	switch {
	case reads(r.Method) && r.URL.Path == loginPath:
		g.d.pages.enter(w, r, http.StatusOK)
	case reads(r.Method):
		g.d.pages.loginFile(w, r)
	case r.Method == http.MethodPost && r.URL.Path == loginPath:
		g.enter(w, r)
	default:
		g.refuse(w, r, refused(http.StatusMethodNotAllowed, "", "nothing here answers "+r.Method))
	}
}

// enter exchanges a link for a cookie.
func (g *guard) enter(w http.ResponseWriter, r *http.Request) {
	defer limitBody(w, r)()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	text, ok := parseLogin(r.Header.Get("Content-Type"), body)
	if err != nil || !ok {
		g.refuse(w, r, refused(http.StatusBadRequest, "make a new link: handler web", "this is no login"))
		return
	}
	value, made, err := g.d.logins.enter(text, r.UserAgent(), g.cookies(r))
	if err != nil {
		f := fault.Of(err)
		status := http.StatusForbidden
		if f.Kind != fault.Refused {
			g.d.log.Error("a login was not kept", "error", err)
			status = http.StatusInternalServerError
		}
		answerFault(w, status, f)
		return
	}
	g.d.record("logged in", made.ID, made.Browser)
	http.SetCookie(w, &http.Cookie{Name: g.o.cookieName(), Value: value, Path: "/", MaxAge: int(LoginTime.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.WriteHeader(http.StatusNoContent)
}

// parseLogin reads the body of a login: JSON with the one key "link".
func parseLogin(contentType string, body []byte) (string, bool) {
	if contentType != "application/json" {
		return "", false
	}
	var l struct {
		Link string `json:"link"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if dec.Decode(&l) != nil {
		return "", false
	}
	_, err := dec.Token()
	return l.Link, err == io.EOF && l.Link != ""
}

func (g *guard) me(w http.ResponseWriter, r *http.Request) {
	value, ok := g.cookie(r)
	if !ok { // it was logged out meanwhile
		g.stranger(w, r)
		return
	}
	answer(w, types.WebMe{Token: tokenOf(value), Version: g.d.o.Version, User: g.d.o.User, Home: g.d.o.Home})
}

// logout ends the login of the browser that asks.
func (g *guard) logout(w http.ResponseWriter, r *http.Request) {
	for _, value := range g.cookies(r) {
		if l, ok, _ := g.d.logins.known(value); ok {
			if err := g.d.Logout(l.ID); err != nil {
				answerFault(w, http.StatusInternalServerError, fault.Of(err))
				return
			}
		}
	}
	http.SetCookie(w, &http.Cookie{Name: g.o.cookieName(), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	answer(w, struct{}{})
}

// refuse says why, as the API does or for people to read.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	g.d.log.Debug("request to the page's door refused", "status", no.status, "reason", no.fault.Text)
	answerFault(w, no.status, no.fault)
	if r.Body != nil {
		w.Header().Set("Connection", "close")
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}

func answerFault(w http.ResponseWriter, status int, f *fault.Fault) {
	e, _ := types.FromError(f)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e) // who asked may be gone
}

// cut makes what a stranger wrote fit for a message.
func cut(text string, most int) string {
	return browserName(text)[:min(len(browserName(text)), most)]
}
