package skill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"junction/cmd/pack/manifest"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

const (
	maxFrontmatter = 64 << 10 // bytes
	maxName        = 64
	maxDescription = 1024 // characters
)

// skillName is the form of names in the specification of Agent Skills.
var skillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// complete makes the entry of a skill whose files are known. It returns why that is not possible.
func (s *Skill) complete(root *os.Root, dir, folder string) (line int, problem string) {
	text, err := contentOf(root, folder+"/"+fileName)
	if err != nil {
		return 0, fmt.Sprintf("cannot be read: %v", err)
	}
	own := slices.IndexFunc(s.Files, func(f *File) bool { return f.URI == s.URI })
	if own < 0 || digestOf(text) != s.Files[own].Digest {
		return 0, "changes at the moment"
	}
	front, ok := frontmatter(text)
	if !ok {
		return 1, fmt.Sprintf("does not begin with frontmatter: a line ---, YAML with name and description of at most "+
			"%d KiB, and a line ---", maxFrontmatter>>10)
	}
	object, problems := manifest.FromYAML(filepath.Join(dir, filepath.FromSlash(folder), fileName), front)
	if len(problems) > 0 {
		if problems[0].Path != "" {
			return problems[0].Line, problems[0].Path + ": " + problems[0].Text
		}
		return problems[0].Line, problems[0].Text
	}
	s.Entry = s.entry(object)
	o, err := raw.Parse(s.Entry)
	if err != nil {
		return 1, fmt.Sprintf("has frontmatter that cannot be written as JSON: %v", err)
	}
	if why := definition.CheckSkill(o); why != "" {
		return 1, "cannot be a skill: " + why
	}
	fields, _ := o.Object("frontmatter") // CheckSkill has read both
	s.Name, _ = fields.String("name")
	s.Description, _ = fields.String("description")
	switch n := utf8.RuneCountInString(s.Description); {
	case !skillName.MatchString(s.Name) || len(s.Name) > maxName:
		return 1, fmt.Sprintf("has the name %q; a name has at most %d of a-z, 0-9 and single hyphens", s.Name, maxName)
	case n == 0 || n > maxDescription:
		return 1, fmt.Sprintf("has a description of %d characters; write 1 to %d", n, maxDescription)
	case s.Name != path.Base(folder):
		return 1, fmt.Sprintf("has the name %q; write the name of its folder", s.Name)
	}
	return 0, ""
}

// frontmatter returns the YAML between the lines --- with the first of these lines, so that the
// lines have the numbers that they have in the file.
func frontmatter(text []byte) (yaml []byte, ok bool) {
	n := 0
	for line := range bytes.Lines(text) {
		bare := string(bytes.TrimRight(line, "\r\n"))
		switch {
		case n == 0 && bare != "---", n > maxFrontmatter:
			return nil, false
		case n > 0 && bare == "---":
			return text[:n], true
		}
		n += len(line)
	}
	return nil, false
}

// entry returns the entry with the frontmatter.
func (s *Skill) entry(frontmatter json.RawMessage) []byte {
	b := append(raw.AppendQuote([]byte(`{"uri":`), s.URI), `,"frontmatter":`...)
	b = append(append(b, frontmatter...), `,"resources":[`...)
	for i, f := range s.Files {
		if i > 0 {
			b = append(b, ',')
		}
		b = raw.AppendQuote(append(b, `{"uri":`...), f.URI)
		b = append(append(append(b, `,"digest":"`...), f.Digest...), `","size":`...)
		b = append(strconv.AppendInt(b, f.Size, 10), '}')
	}
	return append(b, "]}"...)
}
