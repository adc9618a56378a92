package sessions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Bounds of a walk of a run's state.
const (
	MaxStateEntries = 500_000 // files and folders in it; with more, the run is ended as if it were full
	MaxStateDepth   = 200     // folders in each other
	stateBatch      = 1000    // entries of a folder read at a time
)

// A stateUse is what a walk found.
type stateUse struct {
	bytes   int64  // allocated on the disk
	tooMany string // why it could not be walked to its end; "" when it was
}

// A stateWalk adds up folders of which an agent decides what is in them: it follows no link, leaves none of the folders,
// and reads what is there in bounded parts.
type stateWalk struct {
	use   stateUse
	count int
	most  int64
	seen  map[[2]uint64]bool // files with several names, by device and number
}

// measureState gives what folders hold, in bytes allocated on the disk: a sparse file counts what it has, a file with
// several names counts once. It stops early at most bytes.
func measureState(ctx context.Context, folders []string, most int64) (stateUse, error) {
	w := &stateWalk{most: most, seen: map[[2]uint64]bool{}}
	for _, folder := range folders {
		root, err := os.OpenRoot(folder)
		if err != nil {
			return stateUse{}, err
		}
		err = w.walk(ctx, root)
		root.Close()
		if err != nil {
			return stateUse{}, err
		}
	}
	return w.use, nil
}

func (w *stateWalk) walk(ctx context.Context, root *os.Root) error {
	type folder struct {
		path  string
		depth int
	}
	for next := []folder{{".", 0}}; len(next) > 0 && !w.full(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := next[len(next)-1]
		next = next[:len(next)-1]
		dir, err := openFolder(root, at.path)
		if err != nil {
			if at.depth == 0 {
				return err
			}
			continue // it was removed
		}
		for !w.full() {
			entries, err := dir.ReadDir(stateBatch)
			for _, e := range entries {
				if w.add(e) && at.depth < MaxStateDepth {
					next = append(next, folder{path.Join(at.path, e.Name()), at.depth + 1})
				} else if e.IsDir() {
					w.use.tooMany = fmt.Sprintf("its folders lie more than %d deep in each other", MaxStateDepth)
				}
			}
			if err != nil || len(entries) == 0 {
				break
			}
		}
		dir.Close()
	}
	return nil
}

// openFolder opens a folder, also one that the agent has closed to everyone, itself included.
func openFolder(root *os.Root, name string) (*os.File, error) {
	dir, err := root.Open(name)
	if !errors.Is(err, fs.ErrPermission) {
		return dir, err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(name, info.Mode().Perm()|0o500); err != nil {
		return nil, err
	}
	return root.Open(name)
}

func (w *stateWalk) full() bool { return w.use.tooMany != "" || w.use.bytes >= w.most }

// add counts an entry, and tells whether it is a folder.
func (w *stateWalk) add(e fs.DirEntry) bool {
	if w.count++; w.count > MaxStateEntries {
		w.use.tooMany = fmt.Sprintf("it has more than %d files", MaxStateEntries)
	}
	info, err := e.Info()
	if err != nil {
		return false // it was removed
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return e.IsDir()
	}
	if st.Nlink > 1 && !e.IsDir() {
		id := [2]uint64{st.Dev, st.Ino}
		if w.seen[id] {
			return false
		}
		w.seen[id] = true
	}
	w.use.bytes += st.Blocks * 512
	return e.IsDir()
}
