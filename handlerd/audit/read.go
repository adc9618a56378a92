package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// A Match chooses records; nil chooses all but those that the log writes of itself (KindChain).
type Match func(Record) bool

// Tail gives the last n records of the log at path that match chooses, oldest first, files that were put aside
// included. Lines that are no record are skipped. A log that is not there is empty.
func Tail(path string, n int, match Match) ([]Record, error) {
	var found []Record
	for i := 0; i <= KeepFiles && len(found) < n; i++ {
		name := path
		if i > 0 {
			name = aside(path, i)
		}
		older, err := tailFile(name, n-len(found), match)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		found = append(older, found...)
	}
	return found, nil
}

// tailFile gives the last n chosen records of one file, keeping no more than twice as many at a time.
func tailFile(name string, n int, match Match) ([]Record, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []Record
	lines := &lineReader{r: bufio.NewReaderSize(file, MaxLine)}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return found[max(0, len(found)-n):], nil
		} else if err != nil {
			return nil, err
		}
		if r, ok := decode(line, match); ok {
			if len(found) >= 2*n {
				found = append(found[:0], found[n:]...)
			}
			found = append(found, r)
		}
	}
}

// decode reads one line. What is no record of a version we know how to read is none.
func decode(line []byte, match Match) (Record, bool) {
	var r Record
	if json.Unmarshal(line, &r) != nil || r.Version < 1 || r.Kind == "" {
		return Record{}, false
	}
	if match == nil && r.Kind == KindChain || match != nil && !match(r) {
		return Record{}, false
	}
	return r, true
}

// Watch gives each the last n records that match chooses and then every one that is appended, none twice and none left
// out, until the context ends or each fails; it gives that error.
func Watch(ctx context.Context, path string, n int, match Match, each func(Record) error) error {
	f := follower{path: path, match: match}
	defer f.close()
	if err := f.open(io.SeekEnd); err != nil { // first, so that what comes meanwhile is seen twice and not never
		return err
	}
	records, err := Tail(path, n, match)
	if err != nil {
		return err
	}
	shown := int64(0)
	f.each = func(r Record) error {
		if r.N > 0 && r.N <= shown {
			return nil
		}
		shown = max(shown, r.N)
		return each(r)
	}
	for _, r := range records {
		if err := f.each(r); err != nil {
			return err
		}
	}
	return f.follow(ctx)
}

// pollEvery is how long a new record may wait for a follower.
const pollEvery = 200 * time.Millisecond

// Follow calls each for every record that is appended to the log at path after the call and that match chooses, in
// order, until the context ends or each fails; it gives that error. It survives that the file is put aside, and waits
// for one that is not there yet.
func Follow(ctx context.Context, path string, match Match, each func(Record) error) error {
	f := follower{path: path, match: match, each: each}
	defer f.close()
	if err := f.open(io.SeekEnd); err != nil {
		return err
	}
	return f.follow(ctx)
}

// follow reads on until the context ends or each fails.
func (f *follower) follow(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := f.read(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// A follower is at one place of one file.
type follower struct {
	path  string
	match Match
	each  func(Record) error
	file  *os.File // nil while there is none
	lines *lineReader
}

func (f *follower) open(whence int) error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := file.Seek(0, whence); err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.lines = file, &lineReader{r: bufio.NewReaderSize(file, MaxLine)}
	return nil
}

func (f *follower) close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// read gives on all that is there, and goes over to the new file where the old one was put aside.
func (f *follower) read() error {
	for {
		if f.file == nil {
			if err := f.open(io.SeekStart); err != nil || f.file == nil {
				return err
			}
		}
		// Asked before the old file is drained: what comes into the new one later is read there.
		moved, err := f.moved()
		if err != nil {
			return err
		}
		if err := f.drain(); err != nil {
			return err
		}
		if !moved {
			return nil
		}
		f.close()
	}
}

func (f *follower) drain() error {
	for {
		line, err := f.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if r, ok := decode(line, f.match); ok {
			if err := f.each(r); err != nil {
				return err
			}
		}
	}
}

// moved tells whether the path now names another file, or none.
func (f *follower) moved() (bool, error) {
	ours, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return !os.SameFile(ours, now), nil
}

// A lineReader gives whole lines. A line still without its end is kept for the next call; one longer than MaxLine is
// passed over, however long it is.
type lineReader struct {
	r       *bufio.Reader
	partial []byte
	tooLong bool
}

// next gives the next whole line without its newline, or io.EOF while there is none.
func (l *lineReader) next() ([]byte, error) {
	for {
		piece, err := l.r.ReadSlice('\n')
		if len(l.partial)+len(piece) > MaxLine {
			l.tooLong, l.partial = true, l.partial[:0]
		} else if !l.tooLong {
			l.partial = append(l.partial, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		} else if err != nil {
			return nil, err
		}
		line, skip := bytes.Clone(bytes.TrimSuffix(l.partial, []byte("\n"))), l.tooLong
		l.partial, l.tooLong = l.partial[:0], false
		if !skip {
			return line, nil
		}
	}
}
