package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// maxTorn bounds the bytes that crashes may leave behind the last whole line: more was nobody's torn line.
const maxTorn = 64 << 10

// A tail is where a predecessor stopped.
type tail struct {
	last    link   // the last whole chained line; zero if there is none
	first   told   // the first chained line of the oldest file
	older   bool   // there are lines of version 1
	torn    int64  // bytes behind last in the newest file that are no whole line
	tornSum digest // of them, with the newline that is to end them
	ragged  bool   // the newest file does not end in a newline
	broken  string // why last cannot be gone on from; "" if it can
}

// findTail looks at what is there of the log at path, and whether it ends as its head says.
func findTail(path string, head headState, known bool) (tail, error) {
	var t tail
	want, _ := head.link()
	got := link{}
	for i := 0; i <= KeepFiles; i++ {
		ft, err := tailOf(fileName(path, i), want.n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return t, err
		}
		if i == 0 {
			t.torn, t.tornSum, t.ragged = ft.torn, ft.tornSum, ft.ragged
		} else if ft.torn > 0 && t.last.n == 0 {
			t.broken = fmt.Sprintf("%s ends in what is no line", fileName(path, i))
		}
		if t.last.n == 0 {
			t.last = ft.last
		}
		if ft.first.n > 0 {
			t.first = ft.first
		}
		if ft.asked.n > 0 {
			got = ft.asked
		}
		t.older = t.older || ft.older
		// The newest lines say all, unless the head is to be found anew or has not come far enough.
		if known && t.last.n > 0 && (got.n > 0 || want.n == 0 || want.n > t.last.n || i > 0) {
			break
		}
	}
	switch {
	case t.broken != "":
	case !known && t.last.n > 0:
		t.broken = "its head is gone"
	case want.n > t.last.n:
		t.broken = fmt.Sprintf("it ended at line %d, and its head says line %d: what was between them is gone", t.last.n, want.n)
	case got.n > 0 && got.sum != want.sum:
		t.broken = fmt.Sprintf("line %d is not the one that its head says", want.n)
	case t.torn > maxTorn:
		t.broken = fmt.Sprintf("it ended in %d bytes that are no line", t.torn)
	}
	if want.n > t.last.n {
		t.last = link{n: want.n} // numbers are never given twice
	}
	return t, nil
}

// fileName is the i-th youngest file of the log at path; 0 is the one that is written to.
func fileName(path string, i int) string {
	if i == 0 {
		return path
	}
	return aside(path, i)
}

// A fileTail is a tail within one file.
type fileTail struct {
	tail
	asked link // the line whose number was asked for
}

// tailOf reads one file. Only the end is looked at closely; that the rest is a chain is for Verify to find.
func tailOf(name string, asked int64) (t fileTail, err error) {
	file, err := os.Open(name)
	if err != nil {
		return t, err
	}
	defer file.Close()
	return tailIn(file, asked)
}

func tailIn(file io.Reader, asked int64) (t fileTail, err error) {
	torn := newTornSum()
	lines := rawLines{r: bufio.NewReaderSize(file, 64<<10)}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return t, err
		}
		place, ok := whole(line.text)
		if !ok && !line.ended {
			// A line that only lacks its newline is one: it gets that before the next.
			if full := append(line.text, '\n'); torn.joins(t.last, full) {
				place, ok = whole(full)
				line.text, t.ragged = full, true
			}
		}
		switch {
		case ok:
		case isOlder(line.text) && t.last.n == 0:
			t.older, torn = true, newTornSum()
			continue
		default:
			torn.add(line)
			continue
		}
		torn = newTornSum()
		t.last = link{place.n, sha256.Sum256(line.text)}
		if t.first.n == 0 {
			t.first = place
		}
		if place.n == asked {
			t.asked = t.last
		}
	}
	var ragged bool
	t.torn, ragged, t.tornSum = torn.end()
	t.ragged = t.ragged || ragged
	return t, nil
}

// firstIn gives the first chained line of a file; n is 0 if there is none.
func firstIn(name string) (told, error) {
	file, err := os.Open(name)
	if err != nil {
		return told{}, err
	}
	defer file.Close()
	lines := rawLines{r: bufio.NewReader(file)}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return told{}, nil
		} else if err != nil {
			return told{}, err
		}
		if t, ok := whole(line.text); ok {
			return t, nil
		}
	}
}

// isOlder tells whether a line is a record of version 1, which had no chain.
func isOlder(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"v":1,`)) && bytes.HasSuffix(line, []byte("}\n")) && json.Valid(line)
}

// A tornSum adds up what is no line, as a marker will say it: ended by a newline.
type tornSum struct {
	sum    hash.Hash
	bytes  int64
	ragged bool
}

func newTornSum() *tornSum { return &tornSum{sum: sha256.New()} }

func (t *tornSum) add(line rawLine) {
	t.sum.Write(line.text)
	t.bytes += line.bytes
	t.ragged = line.bytes > 0 && !line.ended
}

// joins tells whether a line goes on from last, with what was added up between them.
func (t *tornSum) joins(last link, line []byte) bool {
	place, ok := whole(line)
	if !ok || place.begin || place.prev != last.sum || place.n != last.n+1 {
		return false
	}
	var r Record
	if json.Unmarshal(line, &r) != nil || r.Torn != t.bytes {
		return false
	}
	_, _, sum := t.end()
	return t.bytes == 0 || r.TornSum == sum.String()
}

// end gives length and digest, the newline counted in that is still to be written if ragged.
func (t *tornSum) end() (n int64, ragged bool, d digest) {
	n, ragged = t.bytes, t.ragged
	if ragged {
		t.sum.Write([]byte{'\n'})
		n++
	}
	copy(d[:], t.sum.Sum(nil))
	return n, ragged, d
}

// A rawLine is a line with its newline, exactly as it is.
type rawLine struct {
	text  []byte // at most maxTorn bytes of it; valid until the next call
	bytes int64  // how many it has
	ended bool   // by a newline; only the last of a file may not be
}

// rawLines gives every byte of a file in lines.
type rawLines struct {
	r    *bufio.Reader
	text []byte
}

// next gives the next line, or io.EOF when there is nothing more.
func (l *rawLines) next() (rawLine, error) {
	line := rawLine{}
	l.text = l.text[:0]
	for {
		piece, err := l.r.ReadSlice('\n')
		line.bytes += int64(len(piece))
		l.text = append(l.text, piece[:min(len(piece), max(0, maxTorn-len(l.text)))]...)
		line.text = l.text
		switch {
		case err == nil:
			line.ended = true
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && line.bytes > 0:
			return line, nil
		default:
			return line, err
		}
	}
}
