package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdACPClient plays a file to `handler acp` over plain pipes, as an editor that may be right or wrong in any way. Each
// line of the file is a directive; ${NAME} in one stands for the script's variable of that name:
//
//	# …               nothing
//	> TEXT            sends TEXT and a newline
//	raw "…"           sends a Go string literal as it is, without a newline
//	fill SIZE TEXT    sends TEXT and a newline, with SIZE (such as 33MiB) times x in place of @@
//	times N TEXT      sends TEXT and a newline N times, as fast as it is taken, with its number in place of @@
//	< COND…           waits for a line that meets every condition (match_test.go); each line is taken once
//	never COND…       no line up to now meets every condition
//	reply RESULT      answers the request that was taken last
//	say-yes           answers every session/request_permission from here on with its first option that allows once, as
//	                  acpx --approve-all does
//	file NAME PATH    writes the base64 string at PATH of the line that was taken last to the file NAME
//	run VAR           sets VAR to the id of the run, and remembers its processes for nothing-left
//	do COMMAND ARG…   does a command of runScripts's list
//	close             ends the input
//	kill              SIGKILL to handler acp
//	eof               waits for the end of the output
//	exit CODE         waits for the end of handler acp and its exit code; "any" for any
//	stderr REGEXP     what it wrote to standard error fits, once it has ended
//	timeout LIMIT     how long "<", "eof" and "exit" wait from here on; 30s at the beginning
//
// A file that does not say kill or exit ends with close and an exit that is waited for.
func cmdACPClient(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: acp-client [FLAG…] AGENT FILE")
	}
	file := args[len(args)-1]
	c := startACPClient(ts, args[:len(args)-1])
	defer c.end()
	for i, line := range strings.Split(ts.ReadFile(file), "\n") {
		line = strings.TrimRight(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c.at = fmt.Sprintf("%s:%d: %.200s", file, i+1, line)
		ts.Logf("%d: %.300s", i+1, line)
		word, rest, _ := strings.Cut(line, " ")
		directive := directives()[word]
		if directive == nil {
			c.fatalf("unknown directive")
		}
		directive(c, c.expand(rest))
	}
	if !c.over {
		c.at = file + ": at its end"
		c.close("")
		c.exit("any")
	}
}

// An acpClient is one connection of the script's editor.
type acpClient struct {
	ts      *testscript.TestScript
	cmd     *exec.Cmd
	in      io.WriteCloser
	stderr  bytes.Buffer // read once the process has ended
	done    chan struct{}
	timeout time.Duration
	at      string // where in the file we are
	over    bool   // the file waited for the end, or made it
	taken   []byte // the line that was taken last

	writing sync.Mutex // one message at a time

	mu    sync.Mutex
	yes   bool          // protected by mu; questions are answered as they come
	lines [][]byte      // protected by mu; nil where taken
	all   [][]byte      // protected by mu
	eof   bool          // protected by mu
	more  chan struct{} // protected by mu; closed and made anew with every change
}

func startACPClient(ts *testscript.TestScript, args []string) *acpClient {
	c := &acpClient{ts: ts, done: make(chan struct{}), timeout: 30 * time.Second, more: make(chan struct{})}
	c.cmd = exec.Command(filepath.Join(of(ts).bin, "handler"), append([]string{"acp"}, args...)...)
	c.cmd.Env, c.cmd.Dir, c.cmd.Stderr = scriptEnv(ts), ts.MkAbs("."), &c.stderr
	in, err := c.cmd.StdinPipe()
	ts.Check(err)
	out, err := c.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(c.cmd.Start())
	c.in = in
	go func() {
		defer close(c.done)
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			c.got(line, err != nil)
			c.allow(line)
			if err != nil {
				break
			}
		}
		_ = c.cmd.Wait() // the exit code is in ProcessState
	}()
	return c
}

// allow says yes to a question, where it is to.
func (c *acpClient) allow(line []byte) {
	c.mu.Lock()
	yes := c.yes
	c.mu.Unlock()
	var q struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Options []struct{ OptionID, Kind string }
		}
	}
	if !yes || json.Unmarshal(line, &q) != nil || q.Method != "session/request_permission" {
		return
	}
	for _, o := range q.Params.Options {
		if o.Kind == "allow_once" {
			answer, err := json.Marshal(object{"jsonrpc": "2.0", "id": q.ID, "result": object{"outcome": object{"outcome": "selected", "optionId": o.OptionID}}})
			if err != nil {
				return // what was read can be written
			}
			c.writing.Lock()
			defer c.writing.Unlock()
			_, _ = c.in.Write(append(answer, '\n')) // whoever waits for the answer sees that there is none
			return
		}
	}
}

func (c *acpClient) sayYes(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.yes = true
}

func (c *acpClient) got(line []byte, eof bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line = bytes.TrimRight(line, "\n"); len(line) > 0 {
		c.lines, c.all = append(c.lines, line), append(c.all, line)
	}
	c.eof = c.eof || eof
	close(c.more)
	c.more = make(chan struct{})
}

func (c *acpClient) fatalf(format string, args ...any) {
	c.ts.Fatalf("%s\n%s\nthe last lines that came:%s", c.at, fmt.Sprintf(format, args...), c.last())
}

func (c *acpClient) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var log strings.Builder
	for _, line := range c.all[max(0, len(c.all)-60):] {
		fmt.Fprintf(&log, "\n  %s", clip(line))
	}
	return log.String()
}

func (c *acpClient) check(err error) {
	if err != nil {
		c.fatalf("%v", err)
	}
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func (c *acpClient) expand(s string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string { return c.ts.Getenv(m[2 : len(m)-1]) })
}

func directives() map[string]func(*acpClient, string) {
	return map[string]func(*acpClient, string){
		">": (*acpClient).send, "raw": (*acpClient).raw, "fill": (*acpClient).fill, "times": (*acpClient).times, "<": (*acpClient).take,
		"say-yes": (*acpClient).sayYes, "never": (*acpClient).never, "reply": (*acpClient).reply, "file": (*acpClient).file, "run": (*acpClient).run,
		"do": (*acpClient).do, "close": (*acpClient).close, "kill": (*acpClient).kill, "eof": (*acpClient).waitEOF,
		"exit": (*acpClient).exit, "stderr": (*acpClient).wantStderr, "timeout": (*acpClient).setTimeout,
	}
}

func (c *acpClient) send(text string) { c.write([]byte(text + "\n")) }

// write gives up when the other end reads nothing for too long.
func (c *acpClient) write(b []byte) {
	wrote := make(chan error, 1)
	go func() {
		c.writing.Lock()
		defer c.writing.Unlock()
		_, err := c.in.Write(b)
		wrote <- err
	}()
	select {
	case err := <-wrote:
		c.check(err)
	case <-time.After(c.timeout):
		c.fatalf("%d bytes were not read in %v", len(b), c.timeout)
	}
}

func (c *acpClient) raw(text string) {
	s, err := strconv.Unquote(text)
	c.check(err)
	c.write([]byte(s))
}

func (c *acpClient) fill(text string) {
	size, text, _ := strings.Cut(text, " ")
	n, err := parseSize(size)
	c.check(err)
	before, after, ok := strings.Cut(text, "@@")
	if !ok {
		c.fatalf("no @@ in it")
	}
	c.write(append(append([]byte(before), bytes.Repeat([]byte("x"), n)...), after+"\n"...))
}

func (c *acpClient) times(text string) {
	count, text, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(count)
	c.check(err)
	var lines []byte
	for i := range n {
		lines = append(lines, strings.ReplaceAll(text, "@@", strconv.Itoa(i))+"\n"...)
	}
	c.write(lines)
}

func parseSize(s string) (int, error) {
	factor := 1
	for suffix, f := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, factor = rest, f
		}
	}
	n, err := strconv.Atoi(s)
	return n * factor, err
}

// conds reads conditions; they are written as testscript's words are.
func (c *acpClient) conds(text string) condList {
	words, err := splitWords(text)
	c.check(err)
	l, err := parseCondList(words)
	c.check(err)
	return l
}

func (c *acpClient) take(text string) {
	conds := c.conds(text)
	limit := time.After(c.timeout)
	from := 0
	for {
		line, vars, seen, eof, more := c.find(conds, from)
		from = seen
		if line != nil {
			c.taken = line
			fmt.Fprintln(c.ts.Stdout(), clip(line))
			setAll(c.ts, vars)
			return
		}
		if eof {
			c.fatalf("the output ended and no such line came")
		}
		select {
		case <-more:
		case <-limit:
			c.fatalf("no such line in %v", c.timeout)
		}
	}
}

// find takes the first line that meets conds, from the one with this number on. seen is how many there are.
func (c *acpClient) find(conds condList, from int) (line []byte, vars map[string]string, seen int, eof bool, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := from; i < len(c.lines); i++ {
		if c.lines[i] == nil {
			continue
		}
		if vars, err := conds.match(c.lines[i]); err == nil {
			line, c.lines[i] = c.lines[i], nil
			return line, vars, i, false, nil
		}
	}
	return nil, nil, len(c.lines), c.eof, c.more
}

func (c *acpClient) never(text string) {
	conds := c.conds(text)
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, line := range all {
		if _, err := conds.match(line); err == nil {
			c.fatalf("there is such a line: %s", clip(line))
		}
	}
}

func (c *acpClient) reply(result string) {
	ids := at(c.taken, []string{"id"})
	if len(ids) != 1 {
		c.fatalf("the line that was taken last has no id: %s", clip(c.taken))
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, ids[0], result))
}

func (c *acpClient) file(text string) {
	name, path, _ := strings.Cut(text, " ")
	values := at(json.RawMessage(c.taken), strings.Split(path, "."))
	if len(values) != 1 {
		c.fatalf("%d values are at %s", len(values), path)
	}
	data, err := base64.StdEncoding.DecodeString(textOf(values[0]))
	c.check(err)
	c.check(os.WriteFile(c.ts.MkAbs(name), data, 0o600))
}

// run finds the run that our handler acp stands for: scripts run one after the other, so it is the newest.
func (c *acpClient) run(name string) {
	cmdWaitRun(c.ts, false, []string{strings.TrimSpace(name)})
}

func (c *acpClient) do(text string) {
	words, err := splitWords(text)
	c.check(err)
	neg := len(words) > 0 && words[0] == "!"
	if neg {
		words = words[1:]
	}
	if len(words) == 0 || commands()[words[0]] == nil {
		c.fatalf("no such command")
	}
	failed := true
	defer func() {
		if failed {
			c.ts.Logf("%s\nthe last lines that came:%s", c.at, c.last())
		}
	}()
	commands()[words[0]](c.ts, neg, words[1:])
	failed = false
}

func (c *acpClient) close(string) {
	if err := c.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		c.check(err)
	}
}

func (c *acpClient) kill(string) {
	c.over = true
	c.check(c.cmd.Process.Kill())
	c.wait()
}

func (c *acpClient) wait() {
	select {
	case <-c.done:
	case <-time.After(c.timeout):
		c.fatalf("handler acp has not ended in %v", c.timeout)
	}
}

func (c *acpClient) waitEOF(string) {
	limit := time.After(c.timeout)
	for {
		c.mu.Lock()
		eof, more := c.eof, c.more
		c.mu.Unlock()
		if eof {
			return
		}
		select {
		case <-more:
		case <-limit:
			c.fatalf("the output has not ended in %v", c.timeout)
		}
	}
}

func (c *acpClient) exit(code string) {
	c.over = true
	c.wait()
	if got := strconv.Itoa(c.cmd.ProcessState.ExitCode()); code != "any" && got != code {
		c.fatalf("handler acp ended with %s; it said: %s", got, c.stderr.String())
	}
}

func (c *acpClient) wantStderr(pattern string) {
	re, err := regexp.Compile("(?s)" + pattern)
	c.check(err)
	c.wait()
	if !re.Match(c.stderr.Bytes()) {
		c.fatalf("standard error is %q", c.stderr.String())
	}
}

func (c *acpClient) setTimeout(text string) {
	d, err := time.ParseDuration(text)
	c.check(err)
	c.timeout = d
}

// end leaves no process behind, whatever happened, and gives standard error to the script.
func (c *acpClient) end() {
	_ = c.in.Close()
	select {
	case <-c.done:
	case <-time.After(time.Second):
		_ = c.cmd.Process.Kill() // a script that failed in the middle
		<-c.done
	}
	fmt.Fprint(c.ts.Stderr(), c.stderr.String())
}
