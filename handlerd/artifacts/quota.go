package artifacts

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// A TooLargeError says that one artifact is over MaxBytes.
type TooLargeError struct {
	Name  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the artifact %s has more than %d MiB, the most that is kept of one", e.Name, e.Limit>>20)
}

// A QuotaError says which quota is full, what fills it, and what to do.
type QuotaError struct {
	What   string  // "artifacts of run k3f9" or "artifacts"
	Limit  string  // "100" or "1024 MiB of"
	Filled []Share // the largest first, at most three; empty for a run's own
	Hint   string
}

// A Share is what one run has of the whole.
type Share struct {
	Run   string
	Agent string
	Count int
	Bytes int64
}

func (e *QuotaError) Error() string {
	text := fmt.Sprintf("no more than %s %s are kept", e.Limit, e.What)
	var fills []string
	for _, f := range e.Filled {
		fills = append(fills, fmt.Sprintf("run %s of %s has %d with %.1f MiB", f.Run, f.Agent, f.Count, float64(f.Bytes)/(1<<20)))
	}
	if len(fills) > 0 {
		text += ": " + strings.Join(fills, ", ")
	}
	return text + " — " + e.Hint
}

// checkQuota refuses a that would be too much. The transaction holds the writer's lock.
func (s *Store) checkQuota(ctx context.Context, tx *sql.Tx, a Artifact) error {
	var count int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM artifacts WHERE owner = ? AND run = ?", a.Owner, a.Run).Scan(&count)
	if err != nil {
		return err
	}
	if count >= s.opts.PerRun {
		return &QuotaError{What: "artifacts of run " + a.Run, Limit: fmt.Sprint(s.opts.PerRun),
			Hint: "remove some: handler artifacts list --run " + a.Run + ", handler artifacts rm ID"}
	}
	var bytes int64
	err = tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(bytes), 0) FROM artifacts WHERE owner = ?", a.Owner).Scan(&count, &bytes)
	if err != nil {
		return err
	}
	if bytes+a.Bytes <= s.opts.Total && count < s.opts.Count {
		return nil
	}
	shares, err := s.shares(ctx, tx, a.Owner, 3)
	if err != nil {
		return err
	}
	hint := "remove what is not needed: handler artifacts rm ID"
	if len(shares) > 0 {
		hint = "remove what is not needed: handler artifacts rm --run " + shares[0].Run
	}
	limit := fmt.Sprintf("%d MiB of", s.opts.Total>>20)
	if count >= s.opts.Count {
		limit = fmt.Sprint(s.opts.Count)
	}
	return &QuotaError{What: "artifacts", Limit: limit, Filled: shares, Hint: hint}
}

// Usage is how full the store is for one owner.
type Usage struct {
	Count, MaxCount int
	Bytes, Limit    int64
	PerRun          int     // the most of one run
	Largest         []Share // by run, the largest first, at most ten
}

// Usage says what an owner's artifacts take.
func (s *Store) Usage(ctx context.Context, owner string) (Usage, error) {
	u := Usage{Limit: s.opts.Total, MaxCount: s.opts.Count, PerRun: s.opts.PerRun}
	if err := s.Ready(ctx); err != nil {
		return u, err
	}
	err := s.db.Do(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(bytes), 0) FROM artifacts WHERE owner = ?", owner).Scan(&u.Count, &u.Bytes)
		if err != nil {
			return err
		}
		u.Largest, err = s.shares(ctx, tx, owner, 10)
		return err
	})
	return u, s.indexError(err)
}

func (s *Store) shares(ctx context.Context, tx *sql.Tx, owner string, most int) ([]Share, error) {
	rows, err := tx.QueryContext(ctx, `SELECT run, agent, count(*), sum(bytes) AS b FROM artifacts WHERE owner = ?
		GROUP BY run, agent ORDER BY b DESC LIMIT ?`, owner, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Share
	for rows.Next() {
		var sh Share
		if err := rows.Scan(&sh.Run, &sh.Agent, &sh.Count, &sh.Bytes); err != nil {
			return nil, err
		}
		all = append(all, sh)
	}
	return all, rows.Err()
}
