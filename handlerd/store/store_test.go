package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var steps = []string{
	"CREATE TABLE things (name TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT",
	"ALTER TABLE things ADD COLUMN note TEXT NOT NULL DEFAULT ''",
}

func open(t *testing.T, path string, migrations []string) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, migrations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestMigrations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "a b?c#.db") // what an address would take for its own
	db := open(t, path, steps[:1])
	if _, err := db.ExecContext(t.Context(), "INSERT INTO things VALUES ('a', 1)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	db = open(t, path, steps)
	var note string
	if err := db.QueryRowContext(t.Context(), "SELECT note FROM things WHERE name = 'a'").Scan(&note); err != nil {
		t.Fatal(err)
	}
	db.Close()
	_, err = Open(t.Context(), path, steps[:1])
	var version *VersionError
	if !errors.As(err, &version) || version.Have != 2 || version.Know != 1 {
		t.Errorf("an older program got %v", err)
	}
}

// TestBrokenMigration leaves the file as it was.
func TestBrokenMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	open(t, path, steps[:1]).Close()
	if _, err := Open(t.Context(), path, []string{steps[0], "CREATE TABLE half (n INTEGER); CREATE TABLE nonsense ("}); err == nil {
		t.Fatal("a migration that is no SQL was accepted")
	}
	db := open(t, path, steps)
	var n int
	err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master WHERE name = 'half'").Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("half a migration is left: %d, %v", n, err)
	}
}

func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte("this is the diary of nobody, and long enough to be a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(t.Context(), path, steps); err == nil {
		db.Close()
		t.Error("a diary was opened")
	}
}

// TestWriters: writers of two processes, here of two handles, wait for each other (C08).
func TestWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	all := []*DB{open(t, path, steps), open(t, path, steps)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := all[i%2].Do(t.Context(), func(tx *sql.Tx) error {
				var n int
				if err := tx.QueryRow("SELECT count(*) FROM things").Scan(&n); err != nil {
					return err
				}
				_, err := tx.Exec("INSERT INTO things (name, n) VALUES (?, ?)", fmt.Sprint(i), n)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var n, most int
	if err := all[0].QueryRow("SELECT count(*), max(n) FROM things").Scan(&n, &most); err != nil || n != 20 || most != 19 {
		t.Errorf("%d rows, the last after %d, %v", n, most, err)
	}
}

func TestRollback(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "x.db"), steps)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Do(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO things (name, n) VALUES ('a', 1)"); err != nil {
			return err
		}
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM things").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}
