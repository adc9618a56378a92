package fake

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// Images implements sandbox.Images: its images are folders.
type Images struct {
	dir   string
	fault func(Step, string) error

	mu   sync.Mutex
	byID map[string]*image
}

type image struct {
	sandbox.Image
	root string
}

// Import implements sandbox.Images. Devices in the archive are left out.
func (s *Images) Import(_ context.Context, rootfs io.Reader, tag string, labels map[string]string) (string, error) {
	if err := s.fault(StepImport, tag); err != nil {
		return "", err
	}
	root, err := s.newRoot()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	size, err := unpack(root, io.TeeReader(rootfs, sum))
	if err != nil {
		return "", errors.Join(fmt.Errorf("import %s: %w", tag, err), removeAll(root))
	}
	return s.add(root, hex.EncodeToString(sum.Sum(nil)), tag, labels, size), nil
}

// newRoot makes a folder for an image.
func (s *Images) newRoot() (string, error) {
	root := filepath.Join(s.dir, rand.Text())
	return root, os.MkdirAll(root, 0o700)
}

// add takes an image in. Its tag moves to it; an image of the same id only gets the tag.
func (s *Images) add(root, id, tag string, labels map[string]string, size int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.byID {
		other.Tags = slices.DeleteFunc(other.Tags, func(t string) bool { return t == tag })
	}
	if old := s.byID[id]; old != nil && maps.Equal(old.Labels, labels) {
		_ = removeAll(root)
		old.Tags = append(old.Tags, tag)
		return id
	}
	for s.byID[id] != nil { // the same content under other labels is another image
		next := sha256.Sum256([]byte(id + fmt.Sprint(labels)))
		id = hex.EncodeToString(next[:])
	}
	s.byID[id] = &image{root: root, Image: sandbox.Image{ID: id, Tags: []string{tag}, Labels: maps.Clone(labels),
		Created: time.Now(), Bytes: size}}
	return id
}

// unpack unpacks a tar stream, never outside of dir, and returns the bytes of its files.
func unpack(dir string, r io.Reader) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var size int64
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, r) // to the end, for the digest
			return size, err
		} else if err != nil {
			return 0, err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" {
			continue
		}
		if err := unpackOne(root, name, h, tr); err != nil {
			return 0, err
		}
		size += h.Size
	}
}

func unpackOne(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return nil
}

// Build implements sandbox.Images as far as no process is needed: FROM (scratch, or an image that is here) and COPY
// SOURCE TARGET of the context are done, every other step is named to progress and not run.
func (s *Images) Build(_ context.Context, b sandbox.Build, progress io.Writer) (string, error) {
	if err := s.fault(StepBuild, b.Tag); err != nil {
		return "", err
	}
	f, err := os.OpenInRoot(b.Context, b.Containerfile)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", b.Tag, err)
	}
	defer f.Close()
	root, err := s.newRoot()
	if err != nil {
		return "", err
	}
	if err := s.steps(root, b, f, progress); err != nil {
		return "", errors.Join(fmt.Errorf("build %s: %w", b.Tag, err), removeAll(root))
	}
	sum := sha256.Sum256([]byte(root))
	return s.add(root, hex.EncodeToString(sum[:]), b.Tag, b.Labels, 0), nil
}

func (s *Images) steps(root string, b sandbox.Build, file io.Reader, progress io.Writer) error {
	sc := bufio.NewScanner(file)
	from := false
	for sc.Scan() {
		w := strings.Fields(sc.Text())
		if len(w) == 0 || strings.HasPrefix(w[0], "#") {
			continue
		}
		if _, err := fmt.Fprintln(progress, strings.Join(w, " ")); err != nil {
			return err
		}
		switch {
		case strings.EqualFold(w[0], "FROM") && len(w) > 1:
			from = true
			if err := s.restart(root, w[1]); err != nil {
				return err
			}
		case strings.EqualFold(w[0], "COPY") && len(w) == 3:
			if err := copyTree(filepath.Join(root, w[2]), b.Context, w[1]); err != nil {
				return err
			}
		}
	}
	if !from {
		return errors.Join(sc.Err(), errors.New("no FROM"))
	}
	return sc.Err()
}

// restart begins a stage: the last one is the image.
func (s *Images) restart(root, ref string) error {
	if err := removeAll(root); err != nil {
		return err
	}
	if ref == "scratch" {
		return os.MkdirAll(root, 0o700)
	}
	base, err := s.root(ref)
	if err != nil {
		return err
	}
	return os.CopyFS(root, os.DirFS(base))
}

func copyTree(to, dir, from string) error {
	src, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat(path.Clean(from))
	if err != nil {
		return err
	}
	if info.IsDir() {
		sub, err := fs.Sub(src.FS(), path.Clean(from))
		if err != nil {
			return err
		}
		return os.CopyFS(to, sub)
	}
	b, err := src.ReadFile(path.Clean(from))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}

// find returns the image of a tag or an id. The caller holds mu.
func (s *Images) find(ref string) (*image, error) {
	if i := s.byID[strings.TrimPrefix(ref, "sha256:")]; i != nil {
		return i, nil
	}
	for _, i := range s.byID {
		if slices.Contains(i.Tags, ref) {
			return i, nil
		}
	}
	return nil, &sandbox.ImageNotFoundError{Ref: ref}
}

// root returns the folder of an image.
func (s *Images) root(ref string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(ref)
	if err != nil {
		return "", err
	}
	return i.root, nil
}

func (i *image) clone() sandbox.Image {
	c := i.Image
	c.Tags, c.Labels = slices.Clone(i.Tags), maps.Clone(i.Labels)
	return c
}

// Inspect implements sandbox.Images.
func (s *Images) Inspect(_ context.Context, ref string) (sandbox.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	return i.clone(), nil
}

// List implements sandbox.Images. The order is by age.
func (s *Images) List(_ context.Context, labels map[string]string) ([]sandbox.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []sandbox.Image
	for _, i := range s.byID {
		if carries(i.Labels, labels) {
			list = append(list, i.clone())
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Image) int { return a.Created.Compare(b.Created) })
	return list, nil
}

// Remove implements sandbox.Images.
func (s *Images) Remove(_ context.Context, ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(ref)
	if err != nil {
		return nil // gone already
	}
	delete(s.byID, i.ID)
	return removeAll(i.root)
}
