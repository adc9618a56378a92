package render

import (
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/handlerd/handler/addons"
)

// Bounds of an addon's skills: they are sent into the sandbox at every start.
const (
	MaxSkillFiles = 500
	MaxSkillBytes = 4 << 20
)

// A SkillFile is one file of a skill.
type SkillFile struct {
	Path       string // the skill's name and the path in it: "browse/SKILL.md"
	Content    []byte
	Executable bool
}

// ReadSkills reads the skills of an addon from its Source, for Input.Skills: the files below each folder that
// Manifest.Skills names, by the folder's own name. Symlinks and special files are errors, and so are skills without a
// SKILL.md, more than MaxSkillFiles files or MaxSkillBytes. It is the one function of this package that reads files;
// Render does not call it.
func ReadSkills(m *addons.Manifest) ([]SkillFile, error) {
	var files []SkillFile
	left := int64(MaxSkillBytes)
	for _, dir := range m.Skills {
		if m.Source == nil {
			return nil, fmt.Errorf("the addon %s has no folder to read skills from", m.Name)
		}
		if info, err := fs.Stat(m.Source, path.Join(dir, "SKILL.md")); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("the addon %s: its skill %s has no SKILL.md", m.Name, dir)
		}
		err := fs.WalkDir(m.Source, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if len(files) == MaxSkillFiles {
				return fmt.Errorf("more than %d files", MaxSkillFiles)
			}
			f, err := readSkillFile(m.Source, name, left)
			if err != nil {
				return err
			}
			left -= int64(len(f.Content))
			f.Path = path.Join(path.Base(dir), name[len(dir):])
			files = append(files, f)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("the skills of addon %s: %w", m.Name, err)
		}
	}
	return files, nil
}

func readSkillFile(source fs.FS, name string, left int64) (SkillFile, error) {
	link, err := fs.Lstat(source, name)
	if err != nil {
		return SkillFile{}, err
	}
	if !link.Mode().IsRegular() {
		return SkillFile{}, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := source.Open(name)
	if err != nil {
		return SkillFile{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, left+1))
	if err != nil {
		return SkillFile{}, err
	}
	if int64(len(data)) > left {
		return SkillFile{}, fmt.Errorf("more than %d MiB", MaxSkillBytes>>20)
	}
	return SkillFile{Content: data, Executable: link.Mode()&0o100 != 0}, nil
}
