package skill

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/tree"
	"junction/upstream/definition"
	"junction/upstream/files"
)

// maxDepth limits the folders within folders.
const maxDepth = 32

// walk is one walk through the folder skills.
type walk struct {
	root  *os.Root
	steps int   // files and folders that were seen
	bytes int64 // of all files

	folders []string
	infos   map[string]fs.FileInfo // of regular files, by path
	faults  map[string]string      // why a file or folder cannot be a part of a skill, by path
}

// read reads the folder.
func (f *Folder) read() *List {
	l := &List{files: map[string]*File{}}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		l.bad(f.dir, folderName, 0, "cannot be read: %v", files.Reason(err))
		return l
	}
	defer root.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	w := walk{root: root, infos: map[string]fs.FileInfo{}, faults: map[string]string{}}
	w.folder(folderName, nil)
	f.folders = w.folders
	maps.DeleteFunc(f.sums, func(path string, _ sum) bool { return w.infos[path] == nil })
	if w.steps > tree.MaxFiles || w.bytes > tree.MaxBytes {
		l.bad(f.dir, folderName, 0, "has more than %d files and folders or %d MiB; its skills are not served",
			tree.MaxFiles, tree.MaxBytes>>20)
		return l
	}
	paths, faults := slices.Sorted(maps.Keys(w.infos)), slices.Sorted(maps.Keys(w.faults))
	for _, at := range paths {
		if path.Base(at) == fileName {
			f.add(l, &w, paths, faults, path.Dir(at))
		}
	}
	for _, at := range faults { // a SKILL.md that cannot be read
		if path.Base(at) == fileName {
			l.bad(f.dir, at, 0, "%s; the skill is not served", w.faults[at])
		}
	}
	slices.SortFunc(l.Skills, func(a, b *Skill) int { return cmp.Compare(a.URI, b.URI) })
	f.last = l
	return l
}

func (l *List) bad(dir, at string, line int, format string, args ...any) {
	l.Problems = append(l.Problems, manifest.Problem{File: filepath.Join(dir, filepath.FromSlash(at)),
		Line: max(line, 1), Text: fmt.Sprintf(format, args...)})
}

// folder finds the files of a folder. Links to files and folders of the pack are followed. above are
// the folders around it.
func (w *walk) folder(at string, above []fs.FileInfo) {
	info, err := w.root.Stat(at)
	if err != nil {
		w.faults[at] = reason(err)
		return
	}
	within := func(outer fs.FileInfo) bool { return os.SameFile(outer, info) }
	if slices.ContainsFunc(above, within) {
		w.faults[at] = "is a link to a folder around it"
		return
	} else if len(above) == maxDepth {
		w.faults[at] = fmt.Sprintf("is nested more than %d folders deep", maxDepth)
		return
	}
	w.folders = append(w.folders, at)
	entries, err := fs.ReadDir(w.root.FS(), at)
	if err != nil {
		w.faults[at] = reason(err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // of editors and version control
			continue
		}
		if w.steps++; w.steps > tree.MaxFiles {
			return
		}
		name := at + "/" + e.Name()
		switch its, err := w.root.Stat(name); {
		case err != nil:
			w.faults[name] = reason(err)
		case its.IsDir():
			w.folder(name, append(slices.Clip(above), info))
		case its.Mode().IsRegular():
			w.infos[name] = its
			w.bytes += its.Size()
		default:
			w.faults[name] = "is no regular file"
		}
	}
}

// reason is why a file cannot be used.
func reason(err error) string {
	if text := files.Reason(err).Error(); strings.Contains(text, "escapes") {
		return "is a link that leads out of the folder of the pack; copy the file into the folder"
	}
	return fmt.Sprintf("cannot be read: %v", files.Reason(err))
}

// add adds the skill in a folder to the list, or the reason why it is left out.
func (f *Folder) add(l *List, w *walk, paths, faults []string, folder string) {
	first, _ := slices.BinarySearch(faults, folder+"/")
	if first < len(faults) && strings.HasPrefix(faults[first], folder+"/") {
		l.bad(f.dir, faults[first], 0, "%s; the skill %s is not served, because the list of its files must be complete",
			w.faults[faults[first]], path.Base(folder))
		return
	}
	s := &Skill{}
	total := int64(0)
	from, _ := slices.BinarySearch(paths, folder+"/")
	for _, at := range paths[from:] {
		if !strings.HasPrefix(at, folder+"/") {
			break
		}
		info := w.infos[at]
		if total += info.Size(); len(s.Files) == definition.MaxSkillFiles || total > definition.MaxSkillSize {
			l.bad(f.dir, folder, 0, "has more than %d files or %d MiB, which clients need not accept; the skill is "+
				"not served", definition.MaxSkillFiles, definition.MaxSkillSize>>20)
			return
		}
		digest, err := f.digest(w.root, at, info)
		if err != nil {
			l.bad(f.dir, at, 0, "cannot be read: %v; the skill is not served", files.Reason(err))
			return
		}
		s.Files = append(s.Files, &File{URI: uriOf(at), Digest: digest, Size: info.Size(), path: at})
	}
	s.URI = uriOf(folder + "/" + fileName)
	if old := f.last.Get(s.URI); old != nil && slices.EqualFunc(old.Files, s.Files,
		func(a, b *File) bool { return *a == *b }) {
		s = old
	} else if line, problem := s.complete(w.root, f.dir, folder); problem != "" {
		l.bad(f.dir, folder+"/"+fileName, line, "%s; the skill is not served", problem)
		return
	}
	l.Skills = append(l.Skills, s)
	for _, file := range s.Files {
		l.files[file.URI] = file
	}
}

// uriOf returns the URI of a file of the folder skills.
func uriOf(at string) string {
	segments := strings.Split(strings.TrimPrefix(at, folderName+"/"), "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return scheme + strings.Join(segments, "/")
}
