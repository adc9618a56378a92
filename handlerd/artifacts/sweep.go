package artifacts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/store"
)

// sweep takes away what a crash left: files that were being received or saved, and content that no entry names.
func (s *Store) sweep(ctx context.Context, db *store.DB) error {
	entries, err := os.ReadDir(s.tempDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(s.tempDir(), e.Name())); err != nil {
			return err
		}
	}
	if err := s.sweepSaves(ctx, db); err != nil {
		return err
	}
	all, err := s.query(ctx, db, "SELECT "+columns+" FROM artifacts")
	if err != nil {
		return err
	}
	return errors.Join(s.sweepContent(all), s.sweepView(all))
}

// sweepSaves removes temporary names of saves. A folder that is gone, or that is another by now, has none.
func (s *Store) sweepSaves(ctx context.Context, db *store.DB) error {
	type save struct {
		id           int64
		folder, temp string
	}
	rows, err := db.QueryContext(ctx, "SELECT id, folder, temp FROM saves")
	if err != nil {
		return err
	}
	var all []save
	for rows.Next() {
		var v save
		if err := rows.Scan(&v.id, &v.folder, &v.temp); err != nil {
			rows.Close()
			return err
		}
		all = append(all, v)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, v := range all {
		if dir, err := openBeneath(v.folder, ""); err == nil {
			err = unix.Unlinkat(int(dir.Fd()), v.temp, 0)
			dir.Close()
			if err != nil && err != unix.ENOENT {
				s.log.Warn("a half-saved file was not removed", "error", err)
				continue
			}
		}
		if _, err := db.ExecContext(ctx, "DELETE FROM saves WHERE id = ?", v.id); err != nil {
			return err
		}
	}
	return nil
}

// sweepContent removes content that none of the artifacts names.
func (s *Store) sweepContent(all []Artifact) error {
	known := make(map[string]bool, len(all))
	for _, a := range all {
		known[a.SHA256] = true
	}
	return filepath.WalkDir(s.contentDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || known[d.Name()] {
			return err
		}
		return os.Remove(path)
	})
}
