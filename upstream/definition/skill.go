package definition

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"junction/upstream/raw"
	"junction/upstream/transport"
)

// ExtensionSkills is the extension with skills/list, skills/get and resources/directory/read
// (SEP-2640).
const ExtensionSkills = "io.modelcontextprotocol/skills"

const (
	// MaxSkillFiles and MaxSkillSize are the limits of the extension for one skill: hosts need not
	// accept more files, or more bytes of all files together.
	MaxSkillFiles = 512
	MaxSkillSize  = 16 << 20

	// MaxSkillURI bounds the URI of a skill, and MaxSkillDepth its folders, in each of which a file of it
	// is searched (Catalog.SkillsWith).
	MaxSkillURI   = 2 << 10
	MaxSkillDepth = 32

	skillFile = "/SKILL.md"
	digestLen = len("sha256:") + 64
)

// SkillFile is one file of a skill.
type SkillFile struct {
	URI    string
	Digest string // sha256: and 64 hexadecimal digits
	Size   int64
}

// Skills are the rules of the definitions of skills/list. CheckSkill has what they cannot say.
var Skills = Rules([]rule{
	{"frontmatter", present, anyObject, nil}, {"_meta", optional, anyObject, nil},
})

// CheckSkill returns why a skill cannot be listed; "" if it can. The entry must be as the extension
// demands, because a host could not verify the files of another one.
func CheckSkill(o raw.Object) string {
	uri, err := o.String("uri")
	if err != nil {
		return "it has no uri that all clients would read alike"
	}
	folder, err := SkillFolder(uri)
	if err != nil {
		return "its uri " + err.Error()
	}
	frontmatter, err := o.Object("frontmatter")
	if err != nil {
		return "frontmatter cannot be read"
	}
	name, err := frontmatter.String("name")
	if err != nil {
		return "its frontmatter has no name"
	}
	if _, err := frontmatter.String("description"); err != nil {
		return "its frontmatter has no description"
	}
	if last := folder[strings.LastIndexByte(folder, '/')+1:]; last != name {
		return fmt.Sprintf("its frontmatter has the name %q, and its uri %q", cut(name), cut(last))
	}
	if dynamic, err := o.String("resources"); err == nil && dynamic == "dynamic" {
		return ""
	}
	return checkFiles(o, uri, folder)
}

// checkFiles checks the list of the files of a skill.
func checkFiles(o raw.Object, uri, folder string) string {
	list, err := o.Get("resources")
	if err != nil || list[0] != '[' {
		return `resources is neither a list nor "dynamic"`
	}
	elements, err := raw.ElementsWithin(list, MaxSkillFiles)
	if err == raw.ErrMany {
		return fmt.Sprintf("it has more than %d files", MaxSkillFiles)
	} else if err != nil {
		return "resources cannot be read"
	}
	seen := make(map[string]bool, len(elements))
	total := int64(0)
	for i, e := range elements {
		file, err := skillFileOf(e)
		switch {
		case err != nil:
			return fmt.Sprintf("resources[%d] %s", i, err)
		case !strings.HasPrefix(file.URI, folder+"/"):
			return fmt.Sprintf("resources[%d] is outside of the folder of the skill: %s", i, cut(file.URI))
		case seen[file.URI]:
			return fmt.Sprintf("resources[%d] is there twice: %s", i, cut(file.URI))
		}
		if problem := oddPath(file.URI[len(folder)+1:]); problem != "" {
			return fmt.Sprintf("resources[%d] %s: %s", i, problem, cut(file.URI))
		}
		seen[file.URI] = true
		if total += file.Size; file.Size > MaxSkillSize || total > MaxSkillSize {
			return fmt.Sprintf("its files have more than %d MiB together", MaxSkillSize>>20)
		}
	}
	if !seen[uri] {
		return "resources does not have its SKILL.md"
	}
	return ""
}

// skillFileOf reads an element of resources.
func skillFileOf(element []byte) (f SkillFile, err error) {
	o, err := raw.Parse(element)
	if err != nil {
		return f, errors.New("is no object")
	}
	if f.URI, err = o.String("uri"); err != nil {
		return f, errors.New("has no uri")
	}
	if f.Digest, err = o.String("digest"); err != nil || !isDigest(f.Digest) {
		return f, errors.New("has no digest of the form sha256: and 64 lowercase hexadecimal digits")
	}
	size, err := o.Get("size")
	if err == nil {
		var ok bool
		if f.Size, ok = WholeNumber(size); ok {
			return f, nil
		}
	}
	return f, errors.New("has no size in bytes")
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(s) == digestLen && strings.Trim(hex, "0123456789abcdef") == ""
}

// SkillFolder returns the URI of the folder of a skill, by the URI of its SKILL.md. The error
// follows the words "its uri".
func SkillFolder(uri string) (string, error) {
	folder, ok := strings.CutSuffix(uri, skillFile)
	scheme, path, hasScheme := strings.Cut(folder, "://")
	switch {
	case !ok || !hasScheme || scheme == "":
		return "", fmt.Errorf("is not that of a SKILL.md, such as skill://path/SKILL.md: %s", cut(uri))
	case scheme == "file" && strings.HasPrefix(path, "/"):
		path = path[1:] // no host
	}
	if problem := oddPath(path); problem != "" {
		return "", fmt.Errorf("%s: %s", problem, cut(uri))
	}
	if len(uri) > MaxSkillURI || strings.Count(path, "/") > MaxSkillDepth {
		return "", fmt.Errorf("is too long or too deep: %s", cut(uri))
	}
	return folder, nil
}

// oddPath returns what is wrong with the path of a skill or of a file of it; "" if nothing is. Such
// a path may mean another file to its reader.
func oddPath(path string) string {
	if strings.ContainsAny(path, "\\?#") ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "has a character that a path of a skill cannot have"
	}
	lower := strings.ToLower(path)
	for range 4 { // a reader may decode more than once
		lower = strings.ReplaceAll(lower, "%25", "%")
	}
	for _, code := range [...]string{"%2e", "%2f", "%5c", "%00"} {
		if strings.Contains(lower, code) {
			return "has the encoded character " + code
		}
	}
	for s := range strings.SplitSeq(path, "/") {
		if name, _, _ := strings.Cut(s, ";"); s == "" || name == "." || name == ".." {
			return "has an empty segment or a dot segment"
		}
	}
	return ""
}

// SkillFiles yields the files of a skill that CheckSkill accepts; none for a dynamic skill.
func SkillFiles(o raw.Object) iter.Seq[SkillFile] {
	return func(yield func(SkillFile) bool) {
		elements, err := o.Elements("resources")
		if err != nil {
			return
		}
		for _, e := range elements {
			if f, err := skillFileOf(e); err == nil && !yield(f) {
				return
			}
		}
	}
}

// cut returns a text of the server in one short line.
func cut(s string) string { return transport.Line([]byte(s)) }
