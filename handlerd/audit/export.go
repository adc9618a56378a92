package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// exportVersion is that of an exported file.
const exportVersion = 1

// An exportHeader is the first line of an exported file: what vouches for the two ends of the lines behind it, so that
// the file can be verified by itself.
type exportHeader struct {
	Export    int        `json:"handlerAudit"`
	Exported  time.Time  `json:"exported"`
	Since     *time.Time `json:"since,omitempty"`
	Lines     int64      `json:"lines"`     // chained ones
	Unchained int64      `json:"unchained"` // of version 1
	First     int64      `json:"first"`
	FirstPrev string     `json:"firstPrev"`
	Last      int64      `json:"last"`
	Digest    string     `json:"digest"` // of the last line
}

// Export writes the log at path, from the first line not older than since on (all of it if zero), as one file of lines:
// a header and then every line byte for byte as it is in the log. The log is verified first, and what was touched is
// not exported: the error is a *Tampering then.
func Export(path string, since, now time.Time, w io.Writer) (Report, error) {
	chain, report, err := verify(path, true)
	if err != nil {
		return report, err
	}
	entries := chain.since(since)
	header := exportHeader{Export: exportVersion, Exported: now.UTC().Truncate(time.Second)}
	if !since.IsZero() {
		since = since.UTC()
		header.Since = &since
	}
	var last *entry
	for i := range entries {
		switch e := &entries[i]; {
		case e.form == formOlder:
			header.Unchained++
		case e.form == formLine:
			if last == nil {
				first := firstOf(e.told)
				header.First, header.FirstPrev = first.n, first.prev
			}
			last = e
			header.Lines++
		}
	}
	if last != nil {
		header.Last, header.Digest = last.n, last.sum.String()
	}
	report.Lines, report.Unchained, report.First = header.Lines, header.Unchained, header.First
	return report, writeExport(w, header, entries)
}

// since gives the entries from the first line on that is not older, without what is torn at the end.
func (c *chain) since(since time.Time) []entry {
	entries := c.entries
	for len(entries) > 0 && (entries[0].form == formTorn || entries[0].time.Before(since)) {
		entries = entries[1:]
	}
	for len(entries) > 0 && entries[len(entries)-1].form == formTorn {
		entries = entries[:len(entries)-1]
	}
	return entries
}

func writeExport(w io.Writer, header exportHeader, entries []entry) error {
	out := bufio.NewWriter(w)
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	_, err = out.Write(append(head, '\n'))
	for i := range entries {
		if err != nil {
			return err
		}
		_, err = out.Write(entries[i].raw.text)
	}
	return errors.Join(err, out.Flush())
}

// VerifyExport is Verify for a file that Export wrote.
func VerifyExport(path, kept string) (Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	in := bufio.NewReader(io.LimitReader(file, (KeepFiles+1)*maxVerified))
	first, err := in.ReadSlice('\n')
	var header exportHeader
	if err != nil || json.Unmarshal(first, &header) != nil || header.Export != exportVersion {
		return Report{}, fmt.Errorf("%s is no exported audit log of version %d", path, exportVersion)
	}
	head := headState{N: header.Last, Digest: header.Digest}
	if _, ok := head.link(); !ok {
		return Report{}, fmt.Errorf("the header of %s names no digest", path)
	}
	c := &chain{path: path, head: head, known: true, first: firstKept{header.First, header.FirstPrev}}
	if err := c.loadFrom(in, path, 2, int64(len(first))); err != nil {
		return Report{}, err
	}
	c.report.Files = 1
	if bad := c.check(); bad != nil {
		return c.report, bad
	}
	if c.report.Lines != header.Lines || c.report.Unchained != header.Unchained || c.report.Behind != 0 || !c.ended() {
		return c.report, &Tampering{filepath.Base(path), 1, 0, WasEdited,
			fmt.Sprintf("the header says %d lines and %d without a chain; there are %d and %d", header.Lines, header.Unchained, c.report.Lines, c.report.Unchained)}
	}
	return c.report, c.holds(path, kept)
}

// ended tells whether the last entry is a line, as an exported file's is.
func (c *chain) ended() bool {
	return len(c.entries) == 0 || c.entries[len(c.entries)-1].form != formTorn
}
