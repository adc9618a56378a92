package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// The head is written in place, in one of two slots after the other, each with a sum over itself: a write that a power
// cut tears costs one slot, and the other one says what was so a batch before. That is allowed: lines behind the head
// are only lines that it does not know yet.
const (
	slotBytes     = 512
	headBytes     = 2 * slotBytes
	headSyncEvery = time.Second // so that the head costs no second fsync at each batch
)

// A Head says how far the log has come. Its text is what a person keeps elsewhere.
type Head struct {
	N      int64  `json:"n"`      // number of the last line
	Digest string `json:"digest"` // its SHA-256, in hex
}

func (h Head) String() string { return fmt.Sprintf("%d:%s", h.N, h.Digest) }

// A headState is what the file holds: the last line, and what the oldest line that is kept says of itself, since files
// that were put aside are removed in the end.
type headState struct {
	Version   int    `json:"v"`
	N         int64  `json:"n"`
	Digest    string `json:"digest"`
	First     int64  `json:"first"`
	FirstPrev string `json:"firstPrev"`
	Sum       string `json:"sum"` // the first 16 bytes of the SHA-256 over the rest, in hex
}

func (h headState) link() (link, bool) {
	if h.N == 0 {
		return link{}, h.Digest == ""
	}
	sum, ok := parseDigest([]byte(h.Digest))
	return link{h.N, sum}, ok
}

func (h headState) withSum() headState {
	h.Version, h.Sum = version, ""
	text, _ := json.Marshal(h) // strings and numbers only: never fails
	sum := sha256.Sum256(text)
	h.Sum = hex.EncodeToString(sum[:16])
	return h
}

func (h headState) slot() []byte {
	text, _ := json.Marshal(h.withSum())
	slot := bytes.Repeat([]byte{' '}, slotBytes)
	copy(slot, text)
	slot[slotBytes-1] = '\n'
	return slot
}

// parseHead reads the newest slot that is whole. used is its index.
func parseHead(data []byte) (h headState, used int, ok bool) {
	for i := range 2 {
		if len(data) < (i+1)*slotBytes {
			break
		}
		var s headState
		if json.Unmarshal(data[i*slotBytes:(i+1)*slotBytes], &s) != nil || s.withSum() != s {
			continue
		}
		if _, good := s.link(); good && (!ok || s.N > h.N || s.N == h.N && s.First > h.First) {
			h, used, ok = s, i, true
		}
	}
	return h, used, ok
}

func headPath(path string) string { return path + ".head" }

// readHead reads the head of the log at path. There being none, or none that is whole, is ok == false.
func readHead(path string) (h headState, ok bool, err error) {
	file, err := os.Open(headPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	} else if err != nil {
		return h, false, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, headBytes))
	if err != nil {
		return h, false, err
	}
	h, _, ok = parseHead(data)
	return h, ok, nil
}

// A headFile is the head of a log that is open.
type headFile struct {
	now func() time.Time

	mu     sync.Mutex
	file   *os.File  // protected by mu
	state  headState // protected by mu
	slot   int       // protected by mu; the one that is written next
	synced time.Time // protected by mu
}

// openHead opens or makes the head of the log at path. known tells whether it said something.
func openHead(path string, now func() time.Time) (h *headFile, known bool, err error) {
	file, err := os.OpenFile(headPath(path), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, false, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file; move it away", headPath(path))
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	data := make([]byte, headBytes)
	if err == nil {
		var n int
		if n, err = file.ReadAt(data, 0); errors.Is(err, io.EOF) {
			err = nil
		}
		data = data[:n]
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	h = &headFile{file: file, now: now}
	var used int
	if h.state, used, known = parseHead(data); known {
		h.slot = 1 - used
	}
	return h, known, nil
}

// advance writes that the log has come to last, which is on the disk. The head itself is there at most headSyncEvery
// later, or with the next line: until then it says less than there is, which is no harm.
func (h *headFile) advance(last link) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.state
	next.N, next.Digest = last.n, last.sum.String()
	now := h.now()
	sync := now.Sub(h.synced) >= headSyncEvery || now.Before(h.synced)
	if sync {
		h.synced = now
	}
	return h.write(next, sync)
}

// prune writes which line is the oldest that is kept, before those in front of it are removed.
func (h *headFile) prune(first firstKept) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.state
	next.First, next.FirstPrev = first.n, first.prev
	return h.write(next, true)
}

// write fills the next slot. The caller holds mu.
func (h *headFile) write(next headState, sync bool) error {
	if _, err := h.file.WriteAt(next.slot(), int64(h.slot)*slotBytes); err != nil {
		return err
	}
	h.slot, h.state = 1-h.slot, next
	if sync {
		return h.file.Sync()
	}
	return nil
}

func (h *headFile) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.file.Sync(), h.file.Close())
}

// firstKept is what the oldest chained line says of itself.
type firstKept struct {
	n    int64
	prev string
}
