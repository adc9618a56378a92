package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What was done to a log, as a Tampering says it.
const (
	WasEdited    = "edited"
	WasRemoved   = "removed"
	WasReordered = "reordered"
	WasInserted  = "inserted"
	WasCut       = "cut"       // the end is gone
	WasUnchained = "unchained" // there is nothing that could be verified
)

// maxVerified bounds a file that is read for verification: more than Handler ever writes into one.
const maxVerified = 4 * MaxFile

// A Tampering is the first place at which a log is not as it was written. It is an error.
type Tampering struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1; 0 where it is about the file as a whole
	Offset int64  `json:"offset"` // bytes from the file's beginning
	What   string `json:"what"`   // WasEdited, …
	Reason string `json:"reason"`
}

func (t *Tampering) Error() string {
	if t.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", t.File, t.What, t.Reason)
	}
	return fmt.Sprintf("%s, line %d (byte %d): %s: %s", t.File, t.Line, t.Offset, t.What, t.Reason)
}

// A Report says what Verify looked at.
type Report struct {
	Files     int       `json:"files"`
	Lines     int64     `json:"lines"`     // chained ones
	Unchained int64     `json:"unchained"` // lines of version 1 before the chain: nothing vouches for them
	Torn      int       `json:"torn"`      // lines that a crash cut short
	First     int64     `json:"first"`     // number of the oldest line
	From      time.Time `json:"from"`      // time of the oldest line
	Head      Head      `json:"head"`      // the last line: what to keep elsewhere
	Behind    int64     `json:"behind"`    // lines that the head file does not know yet
}

// Verify reads the log at path, files that were put aside included, and holds every line against the one before it and
// the last one against the head. The error is a *Tampering where the log is not as it was written; anything else says
// that it could not be read. kept is a head that the person kept elsewhere, "N:DIGEST" or the digest alone; "" for none.
// It may run while the log is appended to and put aside.
func Verify(path, kept string) (Report, error) {
	chain, report, err := verify(path, false)
	if err != nil {
		return report, err
	}
	return report, chain.holds(path, kept)
}

func verify(path string, keep bool) (*chain, Report, error) {
	before, known, err := readHead(path)
	if err != nil {
		return nil, Report{}, err
	}
	files, err := openFiles(path)
	if err != nil {
		return nil, Report{}, err
	}
	defer closeFiles(files)
	// Read behind the files: the oldest may have gone meanwhile, and then the head has said so first.
	after, _, err := readHead(path)
	if err != nil {
		return nil, Report{}, err
	}
	chain := &chain{path: path, head: before, known: known, first: firstKept{after.First, after.FirstPrev}, keep: keep}
	for _, f := range files {
		if err := chain.load(f, f.Name()); err != nil {
			return nil, Report{}, err
		}
	}
	chain.report.Files = len(files)
	bad := chain.check()
	if bad != nil {
		return nil, chain.report, bad
	}
	return chain, chain.report, nil
}

// openFiles opens the files of a log, oldest first. It opens the youngest first: one that is put aside meanwhile is
// met again under its next name.
func openFiles(path string) ([]*os.File, error) {
	var files []*os.File
	var infos []fs.FileInfo
next:
	for i := 0; i <= KeepFiles; i++ {
		file, err := os.Open(fileName(path, i))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			closeFiles(files)
			return nil, err
		}
		info, err := file.Stat()
		if err == nil && (!info.Mode().IsRegular() || info.Size() > maxVerified) {
			err = fmt.Errorf("%s is no file of the log: it is not regular, or has more than %d MiB", file.Name(), maxVerified>>20)
		}
		if err != nil {
			closeFiles(append(files, file))
			return nil, err
		}
		for _, other := range infos {
			if os.SameFile(info, other) {
				file.Close()
				continue next
			}
		}
		files, infos = append([]*os.File{file}, files...), append(infos, info)
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Forms of an entry.
const (
	formLine  = iota // a whole chained line
	formOlder        // a line of version 1
	formTorn         // what is no line
)

// An entry is one line of a chain that is verified.
type entry struct {
	told
	form    int
	kind    string
	time    time.Time
	sum     digest
	torn    int64  // of a marker
	tornSum string // of a marker
	why     string // of a marker that begins a chain

	file   string
	line   int
	offset int64
	raw    rawLine // with formTorn, or where the chain keeps all
}

func (e *entry) bad(what, format string, args ...any) *Tampering {
	return &Tampering{filepath.Base(e.file), e.line, e.offset, what, fmt.Sprintf(format, args...)}
}

// A chain is all lines of a log, and what vouches for its ends.
type chain struct {
	path    string
	head    headState // as it was before the files were looked at
	known   bool      // there is a head
	first   firstKept // what the oldest line should be
	keep    bool      // keep the lines themselves
	entries []entry
	report  Report

	byNumber map[int64][]int // indexes of entries
	next     map[digest]bool // digests that a line says of the one before it
}

// load reads a file's lines.
func (c *chain) load(r io.Reader, name string) error {
	return c.loadFrom(io.LimitReader(r, maxVerified), name, 1, 0)
}

// loadFrom reads lines of which the first has a number and an offset in their file.
func (c *chain) loadFrom(r io.Reader, name string, number int, offset int64) error {
	lines := rawLines{r: bufio.NewReaderSize(r, 64<<10)}
	for ; ; number++ {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		e := entry{file: name, line: number, offset: offset}
		offset += line.bytes
		place, ok := whole(line.text)
		switch {
		case ok:
			e.told, e.sum = place, sha256.Sum256(line.text)
			c.describe(&e, line.text)
		case isOlder(line.text):
			e.form = formOlder
			c.describe(&e, line.text)
		default:
			e.form = formTorn
		}
		if c.keep || e.form == formTorn {
			e.raw = rawLine{bytes.Clone(line.text), line.bytes, line.ended}
		}
		c.entries = append(c.entries, e)
	}
}

// describe keeps of a record what the check and the report need.
func (c *chain) describe(e *entry, text []byte) {
	var r Record
	if json.Unmarshal(text, &r) != nil {
		return
	}
	e.kind, e.time, e.torn, e.tornSum = r.Kind, r.Time, r.Torn, r.TornSum
	if e.begin {
		e.why = r.Reason
	}
	if c.report.From.IsZero() {
		c.report.From = r.Time
	}
}

// check gives the first place that is wrong, or nil.
func (c *chain) check() *Tampering {
	c.index()
	var before, last *entry // the last two lines that hold
	var torn []*entry
	for i := range c.entries {
		e := &c.entries[i]
		switch {
		case e.form == formOlder && last == nil:
			c.report.Unchained++
			torn = nil
			continue
		case e.form == formOlder:
			return e.bad(WasInserted, "a line of version 1 stands behind the beginning of the chain")
		case e.form == formTorn:
			torn = append(torn, e)
			continue
		}
		if bad := c.joins(before, last, e, i, torn); bad != nil {
			return bad
		}
		if len(torn) > 0 {
			c.report.Torn++
		}
		if last == nil {
			c.report.First = e.n
		}
		c.report.Lines++
		before, last, torn = last, e, nil
	}
	if n, _, _ := tornEnd(torn); n > maxTorn {
		return torn[0].bad(WasEdited, "%d bytes that are no line", n)
	} else if n > 0 {
		c.report.Torn++
	}
	return c.ends(last)
}

func (c *chain) index() {
	c.byNumber, c.next = map[int64][]int{}, map[digest]bool{}
	for i := range c.entries {
		if e := &c.entries[i]; e.form == formLine {
			c.byNumber[e.n] = append(c.byNumber[e.n], i)
			if !e.begin {
				c.next[e.prev] = true
			}
		}
	}
}

func tornEnd(torn []*entry) (int64, bool, digest) {
	sum := newTornSum()
	for _, e := range torn {
		sum.add(e.raw)
	}
	return sum.end()
}

// joins tells what is wrong between the last line that holds and e, entry i, with torn between them.
func (c *chain) joins(before, last, e *entry, i int, torn []*entry) *Tampering {
	if last == nil {
		return c.begins(e)
	}
	if e.begin {
		if e.kind != KindChain || e.n == 1 {
			return e.bad(WasInserted, "a line that begins a chain stands within one")
		}
		return e.bad(WasCut, "the chain was begun anew: %s", e.why)
	}
	if e.prev != last.sum || e.n != last.n+1 {
		if len(torn) > 0 && e.torn == 0 {
			return torn[0].bad(WasEdited, "it is no line of the chain")
		}
		return c.classify(before, last, e, i)
	}
	n, _, sum := tornEnd(torn)
	switch {
	case n != e.torn && n == 0:
		return e.bad(WasRemoved, "the torn line before this one is gone")
	case n != e.torn || n > 0 && (e.kind != KindChain || e.tornSum != sum.String()):
		return torn[0].bad(WasEdited, "it is no line, and none that a crash cut short")
	}
	return nil
}

// begins tells what is wrong with the oldest chained line.
func (c *chain) begins(e *entry) *Tampering {
	switch {
	case !c.known:
		return nil // ends says so
	case e.n > c.first.n:
		return e.bad(WasRemoved, "lines %d to %d before it are gone", c.first.n, e.n-1)
	case e.begin && e.n > 1:
		return e.bad(WasCut, "the chain was begun anew: %s", e.why)
	case e.n == c.first.n && !e.begin && e.prev.String() != c.first.prev, e.n == c.first.n && e.begin != (c.first.prev == ""):
		return e.bad(WasEdited, "it does not say of the line before it what the head says")
	}
	return nil
}

// ends tells what is wrong with the end of the log.
func (c *chain) ends(last *entry) *Tampering {
	newest := filepath.Base(c.path)
	if last == nil {
		switch {
		case c.head.N > 0:
			return &Tampering{newest, 0, 0, WasCut, fmt.Sprintf("there is no chained line, and the head says that there are %d", c.head.N)}
		case c.known && len(c.entries) == 0:
			return nil // opened, and nothing was written
		}
		return &Tampering{newest, 0, 0, WasUnchained, "no line of it is in a chain, so that nothing can be verified; handlerd begins one with its next line"}
	}
	c.report.Head = Head{last.n, last.sum.String()}
	if !c.known {
		return &Tampering{filepath.Base(headPath(c.path)), 0, 0, WasRemoved, "the head of the log is gone, or none that is whole: an end that was cut off would not be found"}
	}
	want, _ := c.head.link()
	switch {
	case last.n < want.n:
		return last.bad(WasCut, "the log ends with line %d, and its head says line %d", last.n, want.n)
	case want.n == 0:
	default:
		for _, i := range c.byNumber[want.n] {
			if e := &c.entries[i]; e.sum != want.sum {
				return e.bad(WasEdited, "line %d is not the one that the head says", want.n)
			}
		}
	}
	c.report.Behind = last.n - want.n
	return nil
}

// holds tells whether a head that was kept elsewhere is of this chain.
func (c *chain) holds(path, kept string) error {
	if kept == "" {
		return nil
	}
	text := kept
	number, rest, numbered := strings.Cut(kept, ":")
	if numbered {
		text = rest
	}
	sum, ok := parseDigest([]byte(text))
	if !ok {
		return fmt.Errorf("%q is no head: it is N:DIGEST or a digest of 64 hex digits, as verify prints it", kept)
	}
	for i := range c.entries {
		if e := &c.entries[i]; e.form == formLine && e.sum == sum {
			if numbered && fmt.Sprint(e.n) != number {
				return e.bad(WasEdited, "the head that you kept gives this line the number %s", number)
			}
			return nil
		}
	}
	reason := "no line has the digest that you kept: the log was written anew, or that line is older than what is kept of it"
	if numbered {
		var n int64
		if _, err := fmt.Sscan(number, &n); err != nil {
			return fmt.Errorf("%q is no head: %q is no number", kept, number)
		}
		if at := c.byNumber[n]; len(at) > 0 {
			return c.entries[at[0]].bad(WasEdited, "line %d is not the one whose digest you kept: the log was written anew", n)
		}
		if n < c.report.First {
			reason = fmt.Sprintf("line %d is older than what is kept of the log, which begins with line %d", n, c.report.First)
		} else {
			reason = fmt.Sprintf("the log ends with line %d, and you kept the digest of line %d", c.report.Head.N, n)
		}
	}
	return &Tampering{filepath.Base(path), 0, 0, WasCut, reason}
}
