package audit

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Stream calls each for the last n records of the log at path that match chooses, oldest first, and with follow goes on
// with those that are appended, none left out and none twice, until ctx is done, which is no error, or each fails; it
// gives that error.
func Stream(ctx context.Context, path string, n int, follow bool, match Match, each func(Record) error) error {
	if !follow {
		records, err := Tail(path, n, match)
		if err != nil {
			return err
		}
		return giveAll(records, each)
	}
	var last []Record
	f := follower{path: path, match: match, each: func(r Record) error {
		if last = append(last, r); len(last) > 2*n {
			last = append(last[:0], last[n:]...)
		}
		return nil
	}}
	defer f.close()
	if err := f.open(io.SeekStart); err != nil {
		return err
	}
	if f.file != nil {
		if err := f.drain(); err != nil {
			return err
		}
	}
	last = last[max(0, len(last)-n):]
	older, err := f.older(n - len(last))
	if err != nil {
		return err
	}
	if err := giveAll(append(older, last...), each); err != nil {
		return err
	}
	f.each = each
	if err := f.follow(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// older gives the last n chosen records of the files that were put aside, but for the one that is followed, which may
// be among them by now.
func (f *follower) older(n int) ([]Record, error) {
	var found []Record
	for i := 1; i <= KeepFiles && len(found) < n; i++ {
		name := aside(f.path, i)
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return nil, err
		}
		if f.file != nil {
			if ours, err := f.file.Stat(); err == nil && os.SameFile(ours, info) {
				continue
			}
		}
		records, err := tailFile(name, n-len(found), f.match)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		found = append(records, found...)
	}
	return found, nil
}

func giveAll(records []Record, each func(Record) error) error {
	for _, r := range records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}
