package artifacts

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fillStore puts n artifacts of 100 runs into a new store, past Add, which would take minutes.
func fillStore(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	s, err := Open(b.Context(), dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	err = s.db.Do(b.Context(), func(tx *sql.Tx) error {
		for i := range n {
			a := Artifact{ID: fmt.Sprintf("%026d", i), Run: fmt.Sprintf("r%03d", i%100), Name: "shot.png", SHA256: fmt.Sprintf("%064x", i)}
			if err := os.MkdirAll(filepath.Dir(s.content(a.SHA256)), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(s.content(a.SHA256), []byte("x"), 0o400); err != nil {
				return err
			}
			s.show(a)
			_, err := tx.Exec("INSERT INTO artifacts VALUES (?,?,?,?,?,?,?,?,?,?,?)", a.ID, owner, a.Run, "s", "web", a.Name, "tool", "image/png", 1, a.SHA256, i)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkFull is what each thing costs with 10,000 artifacts there.
func BenchmarkFull(b *testing.B) {
	dir := fillStore(b, 10_000)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := Open(b.Context(), dir, Options{})
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
	s, err := Open(b.Context(), dir, Options{Count: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("add", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Add(b.Context(), Meta{Owner: owner, Run: fmt.Sprint(i), Name: "x"}, strings.NewReader(strings.Repeat(fmt.Sprint(i), 20_000))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list of a run", func(b *testing.B) {
		for b.Loop() {
			if all, err := s.List(b.Context(), owner, Filter{Run: "r007"}); err != nil || len(all) != 100 {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if all, err := s.List(b.Context(), owner, Filter{}); err != nil || len(all) < 10_000 {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("usage", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Usage(b.Context(), owner); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Get(b.Context(), owner, "22222222222222222222222222"); err == nil {
				b.Fatal("it is not there")
			}
		}
	})
}
