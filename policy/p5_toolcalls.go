package policy

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
	"unicode"

	"github.com/handlerd/handler/policy/rawjson"
)

// The two ways in which an agent asks its person something (P5).
const (
	MethodPermission  = "session/request_permission"
	MethodElicitation = "elicitation/create"
)

// Bounds of what is remembered of an agent's tool calls. The oldest go first; a question about one that is gone is
// shown as the agent wrote it.
const (
	MaxToolCalls     = 512      // of one run
	MaxToolCallValue = 64 << 10 // bytes of one value; a longer one is forgotten
	MaxToolCallBytes = 4 << 20  // of all
)

// maxStrictUpdate is the length of an update from which on it is not read for what it says of a tool call: it carries a
// picture or a file, which is to go through at the speed of a copy. What was said before is then forgotten.
const maxStrictUpdate = 256 << 10

// metaToolCall is the key in an elicitation's _meta under which the tool call stands that it speaks of.
const metaToolCall = "handler/toolCall"

// joinedKeys are what a question is completed with, in the order in which they are written. rawInput and content are
// any JSON; the others count only as strings.
func joinedKeys() [5]string { return [...]string{"title", "name", "kind", "rawInput", "content"} }

// texts is how many of joinedKeys are strings, the first ones.
const texts = 3

// isText tells a string that has one meaning.
func isText(b []byte, s rawjson.Span) bool {
	_, ok, err := text(b, s, "")
	return ok && err == nil
}

// An announcement is what session/update said of one tool call: the JSON of joinedKeys as the agent wrote it; "" for
// what was never said.
type announcement [5]string

func (a *announcement) size() int {
	n := 0
	for _, v := range a {
		n += len(v)
	}
	return n
}

// toolCall gives what the rules read of an announcement.
func (a *announcement) toolCall(id string) ToolCall {
	return ToolCall{ID: id, Title: decoded(a[0]), Name: decoded(a[1]), Kind: decoded(a[2]), RawInput: a[3]}
}

// decoded gives the text of a JSON string; "" for none.
func decoded(value string) string {
	s, _, err := text([]byte(value), rawjson.Span{End: len(value)}, "")
	if err != nil {
		return ""
	}
	return s
}

// ToolCalls remembers the tool calls that session/update spoke of, so that a question which names only an id can be
// shown with what it is about (P5). The zero value is ready, and a nil one knows nothing; it is safe for concurrent
// use.
type ToolCalls struct {
	mu    sync.Mutex
	known map[[2]string]announcement // by session and id; protected by mu
	order [][2]string                // oldest first; protected by mu
	bytes int                        // of all values; protected by mu
}

// Update takes the params of a session/update. It refuses one that two readers could read as two (P9), since what is
// shown of a tool call is what a later question is held against; what is no tool call, or of types that ACP does not
// have, is passed over.
func (t *ToolCalls) Update(b []byte) Ruling {
	if len(b) > maxStrictUpdate {
		t.forget(b)
		return Ruling{}
	}
	// Most updates are a few words of text: without these bytes there is no tool call in any reading.
	if !bytes.Contains(b, []byte("tool_call")) && !bytes.Contains(b, []byte(`\u`)) {
		return Ruling{}
	}
	start := rawjson.Space(b, 0)
	if start == len(b) || b[start] != '{' {
		return Ruling{}
	}
	o, err := object(b, rawjson.Span{Start: start, End: len(b)}, "session/update.params", "sessionId", "update")
	if err != nil {
		return ruled(Ruling{}, err)
	}
	at := o.Get("update")
	if !at.Present() || b[at.Start] != '{' {
		return Ruling{}
	}
	keys := joinedKeys()
	update, err := object(b, at, "update", append(keys[:], "sessionUpdate", "toolCallId")...)
	if err != nil {
		return ruled(Ruling{}, err)
	}
	switch kind, _, _ := text(b, update.Get("sessionUpdate"), ""); kind {
	case "tool_call", "tool_call_update":
	default:
		return Ruling{}
	}
	session, _, err := text(b, o.Get("sessionId"), "")
	if err != nil {
		return Ruling{}
	}
	if id, _, err := text(b, update.Get("toolCallId"), ""); err == nil && id != "" {
		t.put([2]string{session, id}, b, update)
	}
	return Ruling{}
}

// forget forgets what was said of the tool call of a long update, which may say something else.
func (t *ToolCalls) forget(b []byte) {
	at := rawjson.Space(b, 0)
	session, id := lookText(b, at, "sessionId"), lookText(b, at, "update", "toolCallId")
	if t == nil || id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{session, id}
	if a, ok := t.known[key]; ok {
		t.bytes -= a.size()
		t.known[key] = announcement{}
	}
}

// lookText gives the string under a path of keys; "" for none.
func lookText(b []byte, at int, path ...string) string {
	if at = rawjson.Lookup(b, at, path...); at < 0 || b[at] != '"' {
		return ""
	}
	end, err := rawjson.Skip(b, at)
	if err != nil {
		return ""
	}
	s, _, err := text(b, rawjson.Span{Start: at, End: end}, "")
	if err != nil {
		return ""
	}
	return s
}

// put remembers what an update says. What it does not say stays as it was said before.
func (t *ToolCalls) put(key [2]string, b []byte, update rawjson.Object) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = make(map[[2]string]announcement)
	}
	a, ok := t.known[key]
	if !ok {
		t.order = append(t.order, key)
		t.bytes += len(key[0]) + len(key[1])
	}
	before := a.size()
	for i, name := range joinedKeys() {
		switch at := update.Get(name); {
		case !at.Present(), rawjson.IsNull(b, at):
		case at.End-at.Start > MaxToolCallValue, i < texts && !isText(b, at):
			a[i] = "" // what was said before is not so any more
		default:
			a[i] = string(at.Of(b))
		}
	}
	t.known[key] = a
	t.bytes += a.size() - before
	for len(t.order) > MaxToolCalls || t.bytes > MaxToolCallBytes {
		oldest := t.order[0]
		gone := t.known[oldest]
		t.bytes -= gone.size() + len(oldest[0]) + len(oldest[1])
		delete(t.known, oldest)
		t.order = t.order[1:]
	}
}

// said gives what was said of a tool call.
func (t *ToolCalls) said(session, id string) announcement {
	if t == nil || id == "" {
		return announcement{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[[2]string{session, id}]
}

// Join completes a permission request with what its tool call said before, for the rules that answer it. Where the two
// are about different things there is no kind: then the call is not a read.
func (t *ToolCalls) Join(p Permission) Permission {
	a := t.said(p.SessionID, p.ToolCall.ID)
	old := a.toolCall(p.ToolCall.ID)
	d := differ(p.ToolCall, old)
	for _, f := range []struct{ to, from *string }{
		{&p.ToolCall.Title, &old.Title}, {&p.ToolCall.Name, &old.Name}, {&p.ToolCall.Kind, &old.Kind}, {&p.ToolCall.RawInput, &old.RawInput},
	} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	if d != (difference{}) {
		p.ToolCall.Kind = ""
	}
	return p
}

// A difference is in what a request is about something else than what was announced under its id.
type difference struct{ kind, title, arguments bool }

// differ compares a request with what was announced. A title or arguments from before the call's arguments were there
// are only a beginning, which agents replace.
func differ(asked, said ToolCall) difference {
	var d difference
	begun := said.RawInput == "" || said.RawInput == "{}"
	d.kind = asked.Kind != "" && said.Kind != "" && asked.Kind != said.Kind && said.Kind != "other"
	d.title = asked.Title != "" && said.Title != "" && !sameTitle(asked.Title, said.Title) && (d.kind || !begun)
	// A request that brings its own title and kind says itself what its arguments are for.
	d.arguments = asked.RawInput != "" && !begun && asked.RawInput != said.RawInput && (asked.Title == "" || asked.Kind == "")
	return d
}

// checkPermission is P5 for session/request_permission: it is one question to every reader, what it leaves out of its
// tool call is put in from what was said of that before, and where the two differ the person sees both.
func checkPermission(b []byte, calls *ToolCalls) Ruling {
	var r Ruling
	p, err := ParsePermission(b)
	if err != nil {
		return ruled(r, err)
	}
	said := calls.said(p.SessionID, p.ToolCall.ID)
	if said == (announcement{}) && !speaksForHandler(p.ToolCall.Title) {
		return r
	}
	keys := joinedKeys()
	o, err := params(b, MethodPermission)
	if err != nil {
		return ruled(r, err)
	}
	call, err := object(b, o.Get("toolCall"), "toolCall", keys[:]...)
	if err != nil || !call.Span.Present() {
		return ruled(r, err)
	}
	old := said.toolCall(p.ToolCall.ID)
	d := differ(p.ToolCall, old)
	if d != (difference{}) {
		for i, name := range keys {
			if name != "title" && name != "name" {
				said[i] = "" // of another thing
			}
		}
	}
	joinPermission(b, call, said, &r)
	contradict(b, call, d, p.ToolCall, old, &r)
	if title := cmp.Or(p.ToolCall.Title, old.Title); d == (difference{}) && speaksForHandler(title) {
		note(b, call, p.ToolCall.Title, "[handler: the agent wrote this] "+title, &r)
		r.edit("P5", "a request's title "+quote(title)+" spoke for Handler")
	}
	return ruled(r, nil)
}

// joinPermission puts in what the request does not say.
func joinPermission(b []byte, call rawjson.Object, said announcement, r *Ruling) {
	var added []string
	var names []string
	for i, name := range joinedKeys() {
		at := call.Get(name)
		switch {
		case said[i] == "":
			continue
		case !at.Present():
			added = append(added, `"`+name+`":`+said[i])
		case rawjson.IsNull(b, at): // says as little, and a second key would not be JSON
			r.Edits = append(r.Edits, replace(at, said[i]))
		default:
			continue
		}
		names = append(names, name)
	}
	if names == nil {
		return
	}
	if added != nil {
		r.Edits = append(r.Edits, insert(call, strings.Join(added, ",")))
	}
	r.edit("P5", "the request was completed with what its tool call said before: "+strings.Join(names, ", "))
}

// contradict shows both where a request is about something else than what was announced under its id, and takes its
// kind for none, so that no client which allows reads by itself allows this one.
func contradict(b []byte, call rawjson.Object, d difference, asked, said ToolCall, r *Ruling) {
	if d == (difference{}) {
		return
	}
	before := "announced"
	if said.Title != "" {
		before += " as " + quote(said.Title)
	}
	if d.arguments {
		before += " with other arguments"
	}
	if d.kind {
		before += " of the kind " + quote(said.Kind) + ", now of the kind " + quote(asked.Kind)
	}
	if asked.Kind != "" {
		r.Edits = append(r.Edits, replace(call.Get("kind"), `"other"`))
	}
	now := "a request"
	if asked.Title != "" {
		now = "the request " + quote(asked.Title)
	}
	note(b, call, asked.Title, "[handler: "+before+"] "+cmp.Or(asked.Title, said.Title), r)
	r.edit("P5", now+" is about a tool call that was "+before)
}

// handlerTitle begins a title in which Handler says something. It stands in front, since titles are cut at their end.
const handlerTitle = "[handler"

// speaksForHandler tells a title of an agent's that looks as if Handler had written in it. What nobody sees, such as a
// space of no width, makes it no other.
func speaksForHandler(title string) bool {
	folded := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me) {
			return -1
		}
		return unicode.ToLower(r)
	}, title)
	return strings.HasPrefix(folded, handlerTitle)
}

// note makes title the request's title: in place of asked, the agent's own there, or of what joinPermission put in.
func note(b []byte, call rawjson.Object, asked, title string, r *Ruling) {
	if asked != "" {
		r.Edits = append(r.Edits, replace(call.Get("title"), string(rawjson.AppendString(nil, title))))
		return
	}
	r.Edits = replaceTitle(b, call, r.Edits, title)
}

// replaceTitle makes title the one that edits put in.
func replaceTitle(b []byte, call rawjson.Object, edits []rawjson.Edit, title string) []rawjson.Edit {
	value := string(rawjson.AppendString(nil, title))
	for i, e := range edits {
		if at := call.Get("title"); at.Present() && e.Span == at {
			edits[i].New = []byte(value)
			return edits
		}
		if rest, ok := strings.CutPrefix(string(e.New), `"title":`); ok && e.Start == e.End {
			end, err := rawjson.Skip([]byte(rest), 0)
			if err == nil {
				edits[i].New = []byte(`"title":` + value + rest[end:])
				return edits
			}
		}
	}
	if !call.Get("title").Present() {
		edits = append(edits, insert(call, `"title":`+value))
	}
	return edits
}

// sameTitle tells whether one title only goes on where the other ends.
func sameTitle(a, b string) bool {
	fold := func(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }
	a, b = fold(a), fold(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// joinElicitation puts what is known of the tool call that an elicitation names into its _meta, since ACP has no other
// place for it there. What an agent wrote there itself gives way.
func (t *ToolCalls) joinElicitation(b []byte, o rawjson.Object, r *Ruling) error {
	session, _, err := text(b, o.Get("sessionId"), "sessionId")
	if err != nil {
		return err
	}
	id, _, err := text(b, o.Get("toolCallId"), "toolCallId")
	if err != nil {
		return err
	}
	meta, err := object(b, o.Get("_meta"), "elicitation/create._meta", metaToolCall)
	if err != nil {
		return err
	}
	forged := meta.Get(metaToolCall)
	said := t.said(session, id)
	if said == (announcement{}) {
		if forged.Present() {
			r.edit("P5", "an elicitation's _meta spoke for Handler", replace(forged, "null"))
		}
		return nil
	}
	value := `{"toolCallId":` + string(rawjson.AppendString(nil, id))
	for i, name := range joinedKeys() {
		if said[i] != "" && name != "content" {
			value += `,"` + name + `":` + said[i]
		}
	}
	value += "}"
	member := `"` + metaToolCall + `":` + value
	var e rawjson.Edit
	switch at := o.Get("_meta"); {
	case forged.Present():
		e = replace(forged, value)
	case meta.Span.Present():
		e = insert(meta, member)
	case at.Present(): // null
		e = replace(at, "{"+member+"}")
	default:
		e = insert(o, `"_meta":{`+member+`}`)
	}
	r.edit("P5", "the elicitation was joined with its tool call", e)
	return nil
}
