package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// Bounds of what is kept.
const (
	maxSessions    = 200      // files; the oldest go first
	maxHistory     = 16 << 20 // bytes of one session's history; the oldest updates go first
	maxSessionFile = 2 * maxHistory
)

// A record is one session as its file keeps it.
type record struct {
	Version   int               `json:"version"` // 1
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd"`
	Title     string            `json:"title,omitempty"`
	UpdatedAt time.Time         `json:"updatedAt"`
	History   []json.RawMessage `json:"history"` // updates, as they were sent
}

// add appends an update, at the cost of the oldest where the bound is reached.
func (r *record) add(update json.RawMessage) {
	r.History = append(r.History, update)
	total := 0
	for i, u := range slices.Backward(r.History) {
		if total += len(u); total > maxHistory {
			r.History = slices.Delete(r.History, 0, i+1)
			return
		}
	}
}

// A store keeps sessions in a folder, one file each. With no folder it keeps none.
type store struct{ dir string }

var sessionID = regexp.MustCompile(`^demo-[0-9a-f]{24}$`)

func newSessionID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return "demo-" + hex.EncodeToString(b[:])
}

func (s store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// save writes r in one step: a reader sees the old file or the new one.
func (s store) save(r *record) error {
	if s.dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("keep the session: %w", err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep the session: %w", err)
	}
	tmp, err := os.CreateTemp(s.dir, ".new-*") // 0600
	if err != nil {
		return fmt.Errorf("keep the session: %w", err)
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), s.path(r.ID))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("keep the session: %w", err)
	}
	return s.prune()
}

// load reads a session; the error is what to answer.
func (s store) load(id string) (*record, error) {
	unknown := jsonrpc.Errorf(jsonrpc.CodeResourceNotFound, "there is no session %q", id)
	if s.dir == "" || !sessionID.MatchString(id) {
		return nil, unknown
	}
	f, err := os.Open(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown
	}
	if err != nil {
		return nil, fmt.Errorf("read the session: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSessionFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the session: %w", err)
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil || len(b) > maxSessionFile || r.Version != 1 || r.ID != id {
		return nil, fmt.Errorf("the file of session %s is damaged: remove %s", id, s.path(id))
	}
	return r, nil
}

// remove forgets a session; one that is not there is no error.
func (s store) remove(id string) error {
	if s.dir == "" || !sessionID.MatchString(id) {
		return nil
	}
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the session: %w", err)
	}
	return nil
}

// files gives the sessions' files, newest first.
func (s store) files() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) || s.dir == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	var files []fs.FileInfo
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !sessionID.MatchString(id) {
			continue
		}
		if info, err := e.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return files, nil
}

func (s store) prune() error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for len(files) > maxSessions {
		if err := os.Remove(filepath.Join(s.dir, files[len(files)-1].Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget an old session: %w", err)
		}
		files = files[:len(files)-1]
	}
	return nil
}

// list gives all sessions, newest first; of one folder if cwd is not empty.
func (s store) list(cwd string) ([]jsonrpc.SessionInfo, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	list := []jsonrpc.SessionInfo{}
	for _, f := range files {
		r, err := s.load(strings.TrimSuffix(f.Name(), ".json"))
		if err != nil || (cwd != "" && r.Cwd != cwd) {
			continue // a damaged file is named when it is asked for
		}
		list = append(list, jsonrpc.SessionInfo{SessionID: r.ID, Cwd: r.Cwd, Title: r.Title, UpdatedAt: r.UpdatedAt.Format(time.RFC3339)})
	}
	return list, nil
}
