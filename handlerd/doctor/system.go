package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// System gives the sources of the machine that it runs on, but for the user's name, the folders, and Engine, Images
// and Display, which the caller adds. Programs are looked for in path, a list as in PATH, and run with an empty
// environment.
func System(path string) Sources {
	return Sources{
		Root:     os.DirFS("/"),
		User:     User{UID: os.Getuid(), EUID: os.Geteuid()},
		LookPath: func(program string) (string, error) { return lookPath(path, program) },
		Output:   output,
		Caps:     hasCaps,
		Free:     free,
		OpenFile: openFiles,
		Now:      time.Now,
	}
}

func lookPath(path, program string) (string, error) {
	if filepath.IsAbs(program) {
		return exec.LookPath(program)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // whatever lies in the current folder is nobody's tool
		}
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found, nil
		}
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}

func output(ctx context.Context, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	return cmd.Output()
}

// hasCaps tells whether a file has capabilities (setcap), by the attribute that holds them.
func hasCaps(path string) bool {
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// free asks the nearest folder above path that exists.
func free(path string) (int64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return int64(st.Bavail) * st.Bsize, nil
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return 0, err
		}
		path = parent
	}
}

func openFiles() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Max, err
}
