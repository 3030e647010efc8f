package upstreamtest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"junction/upstream/raw"
)

const extensionSkills = "io.modelcontextprotocol/skills"

// Skill returns the entry of a skill for Script.Skills, and the contents of its files for
// Script.Contents. folder is a URI such as skill://acme/refunds; files are the files besides
// SKILL.md, by their paths in the folder.
func Skill(folder, body string, files map[string]string) (json.RawMessage, map[string]json.RawMessage) {
	name := path.Base(folder)
	all := map[string]string{"SKILL.md": fmt.Sprintf("---\nname: %s\ndescription: Does %s.\n---\n%s", name, name, body)}
	maps.Copy(all, files)
	contents := map[string]json.RawMessage{}
	var list []string
	for _, file := range slices.Sorted(maps.Keys(all)) {
		uri := raw.Quote(folder + "/" + file)
		list = append(list, fmt.Sprintf(`{"uri":%s,"digest":"sha256:%x","size":%d}`, uri,
			sha256.Sum256([]byte(all[file])), len(all[file])))
		contents[folder+"/"+file] = fmt.Appendf(nil, `[{"uri":%s,"text":%s}]`, uri, raw.Quote(all[file]))
	}
	return fmt.Appendf(nil, `{"uri":%s,"frontmatter":{"name":%s,"description":"Does %s."},"resources":[%s]}`,
		raw.Quote(folder+"/SKILL.md"), raw.Quote(name), name, strings.Join(list, ",")), contents
}

// skill answers skills/get.
func (c *call) skill() {
	uri := c.param("uri")
	entry, ok := c.s.script.Gets[uri]
	if !ok {
		entry = c.s.item("skills/list", "uri", uri)
	}
	if entry == nil {
		c.fail(200, -32602, "No skill is served at "+uri, nil)
		return
	}
	c.result(`"skill":%s`, entry)
}

// directory answers resources/directory/read.
func (c *call) directory() {
	list, ok := c.s.script.Directories[c.param("uri")]
	if !ok {
		c.fail(200, -32602, c.param("uri")+" is not a directory resource", nil)
		return
	}
	c.result(`"resources":%s`, list)
}
