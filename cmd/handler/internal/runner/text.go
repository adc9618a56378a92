package runner

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// textPrinter renders events for a person. What it shows of them goes through Text or Line; the rules of the voice are
// those of the command line: state by a sign as well as by colour, numbers with units.
type textPrinter struct {
	w     io.Writer
	color bool
	width int
	home  string

	inLine  bool     // the last line has no end yet
	thought bool     // the last piece was a thought
	last    string   // the tool call whose line stands last
	done    []string // tool calls that ended; the youngest of them
	saved   map[string][]event
	plan    []string
	err     error
}

// failedWidth is how many columns of a failure are shown, over several lines of a terminal where it takes so many.
const failedWidth = 480

// Colours, named by what they mean.
const (
	styleDim    = "2"
	styleGood   = "32"
	styleBad    = "31"
	styleAccent = "36"
	styleAsk    = "33"
)

func (p *textPrinter) style(code, s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// write is the only way out; after an error nothing more is written.
func (p *textPrinter) write(s string) {
	if p.err == nil && s != "" {
		_, p.err = io.WriteString(p.w, s)
	}
}

// line writes a whole line on a line of its own.
func (p *textPrinter) line(s string) {
	p.endLine()
	p.write(s + "\n")
}

func (p *textPrinter) endLine() {
	if p.inLine {
		p.write("\n")
	}
	p.inLine, p.thought = false, false
}

func (p *textPrinter) print(e event) error {
	if e.Event != evToolDone && e.Event != evImage {
		defer func() {
			if e.Event != evTool {
				p.last = ""
			}
		}()
	}
	switch e.Event {
	case evPrompt:
		p.line(p.style(styleAccent, "›") + " " + strings.ReplaceAll(strings.TrimSpace(Text(e.Text)), "\n", "\n  "))
	case evText:
		p.piece(Text(e.Text), false)
	case evThought:
		p.piece(Text(e.Text), true)
	case evPlan:
		p.showPlan(e.Entries)
	case evTool:
		p.line(p.style(styleAccent, "▸") + " " + Fit(joinDetail(Line(e.Name), e.Detail), p.width-2))
		p.last = e.Tool
	case evToolDone:
		p.toolDone(e)
	case evImage:
		p.image(e)
	case evQuestion:
		p.question(e)
	case evNotice:
		p.line(p.style(styleAsk, "!") + " " + Text(e.Text))
	case evDone:
		p.end(e)
	}
	return p.err
}

// piece continues the running text. A thought has … before each line, so that it is told apart without colour.
func (p *textPrinter) piece(s string, thought bool) {
	if s == "" {
		return
	}
	if thought != p.thought && p.inLine {
		p.endLine()
	}
	p.thought = thought
	if thought {
		body, end := strings.CutSuffix(s, "\n")
		body = strings.ReplaceAll(body, "\n", "\n… ")
		if !p.inLine {
			body = "… " + body
		}
		p.write(p.style(styleDim, body))
		if end {
			p.write("\n")
		}
	} else {
		p.write(s)
	}
	p.inLine = !strings.HasSuffix(s, "\n")
}

func joinDetail(name, detail string) string {
	if detail = Line(detail); detail == "" {
		return name
	}
	return name + "  " + detail
}

// showPlan shows a plan when its entries change. The steps themselves show how far it has come.
func (p *textPrinter) showPlan(entries []jsonrpc.PlanEntry) {
	var contents []string
	for _, e := range entries {
		contents = append(contents, e.Content)
	}
	if slices.Equal(contents, p.plan) {
		return
	}
	p.plan = contents
	signs := map[string]string{jsonrpc.StatusCompleted: "✓", jsonrpc.StatusInProgress: "▸"}
	p.line(p.style(styleDim, "plan"))
	for _, e := range entries {
		sign := signs[e.Status]
		if sign == "" {
			sign = "·"
		}
		p.line("  " + sign + " " + Fit(Line(e.Content), p.width-4))
	}
}

func (p *textPrinter) toolDone(e event) {
	sign := p.style(styleGood, "✓")
	if e.Status != jsonrpc.StatusCompleted {
		sign = p.style(styleBad, "✗")
	}
	var parts []string
	if e.Tool != p.last { // others came between: say which it was
		parts = append(parts, Line(e.Name))
	}
	if e.Seconds != nil {
		parts = append(parts, duration(time.Duration(*e.Seconds*float64(time.Second))))
	}
	if d := Line(e.Detail); d != "" {
		parts = append(parts, d)
	}
	saved := p.saved[e.Tool]
	delete(p.saved, e.Tool)
	p.done = append(p.done, e.Tool)
	p.done = p.done[max(0, len(p.done)-100):]
	width := p.width - 4
	if e.Status != jsonrpc.StatusCompleted { // why it failed, and what to do, is at its end
		width = max(width, failedWidth)
	}
	text := Fit(strings.Join(parts, "  "), width)
	if len(saved) == 1 { // the path must never be cut
		text += "  " + p.savedText(saved[0])
		saved = nil
	}
	p.line("  " + sign + " " + text)
	for _, img := range saved {
		p.line("    " + p.savedText(img))
	}
	p.last = ""
}

func (p *textPrinter) savedText(e event) string {
	path := e.Path
	if rest, ok := strings.CutPrefix(path, p.home+"/"); ok && p.home != "" {
		path = "~/" + rest
	}
	return fmt.Sprintf("saved %s (%s)", Line(path), size(e.Bytes))
}

// image keeps a picture for the line that ends its tool call.
func (p *textPrinter) image(e event) {
	if e.Tool == "" || slices.Contains(p.done, e.Tool) {
		p.line("  " + p.savedText(e))
		return
	}
	if p.saved == nil {
		p.saved = map[string][]event{}
	}
	p.saved[e.Tool] = append(p.saved[e.Tool], e)
}

// question says how a question was answered, if not by the person, who knows.
func (p *textPrinter) question(e event) {
	if e.By == byPerson {
		return
	}
	answer := p.style(styleGood, "allowed")
	switch e.Answer {
	case jsonrpc.RejectOnce, jsonrpc.RejectAlways, rejectRun, "decline":
		answer = p.style(styleBad, "refused")
	case "cancelled":
		answer = "withdrawn"
	}
	if e.By != byNobody {
		answer += " (" + e.By + ")"
	}
	p.line(p.style(styleAsk, "?") + " " + Fit(joinDetail(Line(e.Name), e.Detail), p.width-30) + "  " + answer)
}

func (p *textPrinter) end(e event) {
	sign := p.style(styleGood, "●")
	if e.Status != StatusDone {
		sign = p.style(styleBad, "●")
	}
	p.line(sign + " " + Line(strings.Join(e.summary, " · ")))
}

// duration gives a time in units that fit its size.
func duration(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 9.95:
		return fmt.Sprintf("%.1f s", s)
	case s < 59.5:
		return fmt.Sprintf("%.0f s", s)
	default:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
}

// size gives bytes in units that fit their size.
func size(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1_000_000:
		return fmt.Sprintf("%d kB", (n+500)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
}

// count gives "1 tool call", "2 tool calls".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
