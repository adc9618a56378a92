package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func newArtifactsGet(u *ui) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "get ID [FILE|-]", Short: "Fetch an artifact into a file of yours, or - for standard output", Args: usageArgs(cobra.RangeArgs(1, 2)),
		Long: `Fetches an artifact into FILE, or into a file of its name in the folder you are in. The file is whole or not there, and
only you may read it. A file that is there is not replaced without --force.`,
		Example: "  handler artifacts get xnsqjsjn\n  handler artifacts get xnsqjsjn cart.png --force\n  handler artifacts get xnsqjsjn - | file -",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, a, err := u.artifact(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			content, err := c.OpenArtifact(cmd.Context(), a.ID, 0, a.SHA256)
			if err != nil {
				return err
			}
			defer content.Close()
			if len(args) == 2 && args[1] == "-" {
				return u.artifactOut(a, content)
			}
			path := a.Name
			if len(args) == 2 && args[1] != "" {
				path = args[1]
				if info, err := os.Stat(path); err == nil && info.IsDir() {
					path = filepath.Join(path, a.Name)
				}
			}
			if err := fetchInto(cmd.Context(), path, a, content, force); err != nil {
				return err
			}
			return u.result(map[string]any{"path": path, "bytes": a.Bytes, "sha256": a.SHA256}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s (%s)\n", plain(path), bytesText(a.Bytes))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

// artifactOut writes an artifact to standard output. What could give a terminal orders is not written to one.
func (u *ui) artifactOut(a types.Artifact, content io.Reader) error {
	if terminal(u.out) {
		return fault.New(fault.Usage, "name a file, or pipe it: handler artifacts get "+shortArtifact(a.ID)+" - | less", "a terminal obeys what may be in an artifact")
	}
	n, sum, err := copySum(u.out, content)
	if err == nil {
		err = checkFetched(a, n, sum)
	}
	return err
}

func copySum(w io.Writer, r io.Reader) (int64, string, error) {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), r)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

func checkFetched(a types.Artifact, n int64, sum string) error {
	if n != a.Bytes || sum != a.SHA256 {
		return fault.New(fault.Failed, "try again; if it stays so: handler artifacts rm "+shortArtifact(a.ID),
			"%s came with %d bytes of %d, or changed: it was damaged on the disk or on the way", a.Name, n, a.Bytes)
	}
	return nil
}

// fetchInto puts content at path in one step: whole, or not at all. A symlink there is never written through.
func fetchInto(ctx context.Context, path string, a types.Artifact, content io.Reader, force bool) error {
	if !force {
		if _, err := os.Lstat(path); err == nil {
			return taken(path)
		}
	}
	temp := filepath.Join(filepath.Dir(path), ".handler-get-"+strings.ToLower(rand.Text()[:12]))
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "name a file in a folder that exists and that you may write to", "%s is not written", path)
	}
	defer os.Remove(temp) // it has its own name where all went well
	defer context.AfterFunc(ctx, func() { f.Close() })()
	n, sum, err := copySum(f, content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		if ctx.Err() != nil {
			return errReported{exitInterrupted}
		}
		return fault.Wrap(fault.Failed, err, "", "%s is not written", path)
	}
	if err := checkFetched(a, n, sum); err != nil {
		return err
	}
	if force {
		err = replaceFile(temp, path)
	} else if err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Link(temp, path) // a file system that knows no such rename
	}
	if errors.Is(err, fs.ErrExist) {
		return taken(path)
	}
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "%s is not written", path)
	}
	return nil
}

// replaceFile gives temp the name of a file; what is no regular file keeps it.
func replaceFile(temp, path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("what has this name is no regular file")
	}
	return os.Rename(temp, path)
}

func taken(path string) error {
	return fault.New(fault.Failed, "name another file, or replace it: --force", "there is a file %s", path)
}
