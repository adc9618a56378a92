// Package store opens the SQLite files in which the daemon keeps what must survive it (K.3), with one writer and
// numbered migrations. What a file holds is the business of the package that opens it.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite" // the driver "sqlite", without C
	sqlite3 "modernc.org/sqlite/lib"
)

// busyTime is how long a statement waits for another process's lock: the command line may look at a file that the
// daemon writes.
const busyTime = "10000" // milliseconds

// A DB is one open file. It has one connection, so that statements come one after the other and none finds the
// file locked by another of the same daemon (pitfall C08).
type DB struct {
	*sql.DB
	path string
}

// A VersionError says that a file was written by a newer Handler.
type VersionError struct {
	Path       string
	Have, Know int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s is of version %d, and this Handler knows versions up to %d: install a newer one", e.Path, e.Have, e.Know)
}

// Open opens the file at path, made 0600 in a folder made 0700 if they are not there, and brings it to the newest
// version: migrations[i] leads from version i to i+1, each in a transaction of its own. A transaction is on the disk
// when Commit returns. Errors: *VersionError, and what SQLite says of a file that is none of its own.
func Open(ctx context.Context, path string, migrations []string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	// SQLite would make it by the umask.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	address := url.URL{Scheme: "file", Path: path, RawQuery: "_txlock=immediate&_pragma=busy_timeout(" + busyTime + ")" +
		"&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)&_pragma=trusted_schema(0)"}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db.SetMaxOpenConns(1)
	s := &DB{DB: db, path: path}
	if err := s.migrate(ctx, migrations); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *DB) migrate(ctx context.Context, migrations []string) error {
	var have int
	if err := s.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	if have > len(migrations) {
		return &VersionError{s.path, have, len(migrations)}
	}
	for version := have; version < len(migrations); version++ {
		err := s.Do(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
				return err
			}
			// A pragma takes no parameters.
			_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version+1))
			return err
		})
		if err != nil {
			return fmt.Errorf("store %s: to version %d: %w", s.path, version+1, err)
		}
	}
	return nil
}

// Do runs f in a transaction that takes the writer's lock at its beginning, and commits it if f returns nil.
func (s *DB) Do(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// ignoreDone: a transaction whose context ended is rolled back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Full tells whether err says that there is no room on the disk.
func Full(err error) bool {
	var e *sqlite.Error
	return errors.Is(err, unix.ENOSPC) || errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL
}

// Damaged tells whether err is SQLite's word for a file that is no database, or is one that was damaged: trying again
// does not help.
func Damaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	code := e.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}
