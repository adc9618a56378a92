package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// Bounds of getting in.
const (
	LinkTime   = 2 * time.Minute     // how long a link is good; over ssh a person has to type first
	MaxLinks   = 8                   // that are good at one time; the oldest goes
	MaxLogins  = 16                  // browsers that are logged in; the one that was seen longest ago goes
	LoginTime  = 30 * 24 * time.Hour // from a login to its end
	LoginIdle  = 7 * 24 * time.Hour  // the same, where the browser is not seen
	secretSize = 32                  // bytes of a link and of a cookie
	seenEvery  = time.Hour           // how exactly it is written down when a browser was seen
	maxState   = 64 << 10            // bytes of the file
	maxBrowser = 120                 // characters of what a browser says that it is
)

// digest is what is kept of a secret.
type digest [sha256.Size]byte

// A link that is good once.
type link struct {
	hash    digest
	expires time.Time
}

// A login is a browser that is logged in, as the file has it.
type login struct {
	ID      string    `json:"id"`
	Hash    string    `json:"sha256"` // of the cookie's value, in hex
	Browser string    `json:"browser"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`

	hash digest
}

func (l login) expires() time.Time {
	if idle := l.Seen.Add(LoginIdle); idle.Before(l.Created.Add(LoginTime)) {
		return idle
	}
	return l.Created.Add(LoginTime)
}

// good tells whether the login has not expired. A clock that was set back is none of its doing.
func (l login) good(now time.Time) bool { return now.Before(l.expires()) }

// logins are the links and cookies that are good.
type logins struct {
	path string // of the file
	now  func() time.Time

	mu    sync.Mutex
	links []link  // the oldest first; protected by mu
	all   []login // protected by mu
}

// state is the file.
type state struct {
	Logins []login `json:"logins"`
}

// openLogins reads the file; one that is not there has nobody in it. With an error too the result is whole and empty:
// who was logged in logs in again.
func openLogins(path string, now func() time.Time) (*logins, error) {
	l := &logins{path: path, now: now}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return l, err
	}
	l.all, err = parseState(data)
	if err != nil {
		return l, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

func parseState(data []byte) ([]login, error) {
	var s state
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return nil, err
	}
	if len(s.Logins) > MaxLogins {
		return nil, fmt.Errorf("it has %d logins, and %d are the most there can be", len(s.Logins), MaxLogins)
	}
	for i := range s.Logins {
		hash, err := hex.DecodeString(s.Logins[i].Hash)
		if err != nil || len(hash) != sha256.Size || s.Logins[i].ID == "" {
			return nil, fmt.Errorf("its login %d is none", i+1)
		}
		s.Logins[i].hash = digest(hash)
	}
	return s.Logins, nil
}

// save writes the file anew, whole or not at all; mu is held.
func (l *logins) save() error {
	data, err := json.MarshalIndent(state{Logins: l.all}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(l.path), ".web-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), l.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// secret makes what a link or a cookie holds.
func secret() (string, digest) {
	b := make([]byte, secretSize)
	_, _ = rand.Read(b) // it never fails
	text := base64.RawURLEncoding.EncodeToString(b)
	return text, sha256.Sum256([]byte(text))
}

// newLink makes a link's secret.
func (l *logins) newLink() (text string, expires time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.links = slices.DeleteFunc(l.links, func(k link) bool { return !now.Before(k.expires) })
	if len(l.links) >= MaxLinks {
		l.links = l.links[1:]
	}
	text, hash := secret()
	expires = now.Add(LinkTime)
	l.links = append(l.links, link{hash, expires})
	return text, expires
}

// errLink is all that is said of a link that is not good: whether it ever was is nobody's business.
var errLink = fault.New(fault.Refused, "make a new one: handler web", "the link is used up, too old or none of this handlerd's")

// enter uses a link up and gives a cookie's value and its login. A cookie that the browser had before is no good any
// more: one browser is one login. Errors are *fault.Fault.
func (l *logins) enter(text, browser string, before []string) (value string, made login, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	hash := digest(sha256.Sum256([]byte(text)))
	found := -1
	for i := range l.links { // all of them, so that the time says nothing
		if subtle.ConstantTimeCompare(l.links[i].hash[:], hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return "", login{}, errLink
	}
	good := now.Before(l.links[found].expires)
	l.links = slices.Delete(l.links, found, found+1)
	if !good {
		return "", login{}, errLink
	}
	was := slices.Clone(l.all)
	l.all = slices.DeleteFunc(l.all, func(old login) bool { return !old.good(now) })
	for _, value := range before {
		if i := l.index(value); i >= 0 {
			l.all = slices.Delete(l.all, i, i+1)
		}
	}
	if len(l.all) >= MaxLogins {
		oldest := slices.MinFunc(l.all, func(a, b login) int { return a.Seen.Compare(b.Seen) })
		l.all = slices.DeleteFunc(l.all, func(o login) bool { return o.ID == oldest.ID })
	}
	value, cookie := secret()
	made = login{ID: strings.ToLower(rand.Text()[:8]), Hash: hex.EncodeToString(cookie[:]), hash: cookie,
		Browser: browserName(browser), Created: now, Seen: now}
	l.all = append(l.all, made)
	if err := l.save(); err != nil {
		l.all = was
		return "", login{}, fault.Wrap(fault.Failed, err, "free some space or mend the disk, then: handler web", "the login could not be kept")
	}
	return value, made, nil
}

// index gives which login a cookie's value is of, -1 for none; mu is held.
func (l *logins) index(value string) int {
	hash := digest(sha256.Sum256([]byte(value)))
	found := -1
	for i := range l.all {
		if subtle.ConstantTimeCompare(l.all[i].hash[:], hash[:]) == 1 {
			found = i
		}
	}
	return found
}

// known gives the login of a cookie's value that is good now. seen says that it was written down anew when the browser
// was seen; a failure of that is the error, and does not matter to the login.
func (l *logins) known(value string) (found login, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.index(value)
	now := l.now()
	if i < 0 || !l.all[i].good(now) {
		return login{}, false, nil
	}
	if now.Sub(l.all[i].Seen) >= seenEvery {
		l.all[i].Seen = now
		err = l.save()
	}
	return l.all[i], true, err
}

// list gives the logins that are good, the newest first.
func (l *logins) list() []types.WebLogin {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []types.WebLogin{}
	for _, g := range l.all {
		if g.good(l.now()) {
			list = append(list, types.WebLogin{ID: g.ID, Browser: g.Browser, Created: g.Created, Seen: g.Seen, Expires: g.expires()})
		}
	}
	slices.SortStableFunc(list, func(a, b types.WebLogin) int { return b.Created.Compare(a.Created) })
	return list
}

// forget logs a browser out, by its login's id or its unique beginning, or all of them; links end too where it is all.
// It gives the ids of those that went. A file that cannot be written keeps them in it, which is an error, but they are
// out of this daemon's memory all the same.
func (l *logins) forget(id string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []string
	for _, g := range l.all {
		if id == types.AllLogins || strings.HasPrefix(g.ID, id) {
			gone = append(gone, g.ID)
		}
	}
	switch {
	case id == types.AllLogins:
		l.links = nil
	case id == "" || len(gone) == 0:
		return nil, fault.New(fault.NotFound, "see: handler web --list", "no browser is logged in as %.40q", id)
	case len(gone) > 1:
		return nil, fault.New(fault.Usage, "type more of it: "+strings.Join(gone, ", "), "%q is the beginning of several logins", id)
	}
	l.all = slices.DeleteFunc(l.all, func(g login) bool { return slices.Contains(gone, g.ID) })
	if err := l.save(); err != nil {
		return gone, fault.Wrap(fault.Failed, err, "remove "+l.path+", which logs all of them out", "logged out, but a restart of handlerd would log it in again")
	}
	return gone, nil
}

// drop makes every link no good.
func (l *logins) drop() {
	l.mu.Lock()
	l.links = nil
	l.mu.Unlock()
}

// tokenOf is what goes with a cookie's value in every request that changes something.
func tokenOf(value string) string {
	m := hmac.New(sha256.New, []byte(value))
	_, _ = m.Write([]byte("handler: token of the page")) // a hash never fails
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// browserName makes what a browser says that it is fit to be shown.
func browserName(agent string) string {
	agent = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, agent)
	return agent[:min(len(agent), maxBrowser)]
}
