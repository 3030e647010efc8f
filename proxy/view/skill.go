package view

import (
	"fmt"
	"strings"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// This file decides which skills a subject sees. The list of the files of a skill is complete, and
// has their digests, so a skill is shown as its server lists it, or not at all.

const skillScheme = "skill://"

// Skill finds the skill of a URI, which may be in no list: only the upstream can tell then whether
// the skill exists. The error comes from Resource. The files of the skill may be denied; see Withheld.
func (s *SubjectView) Skill(uri string) (*Target, error) {
	t, err := s.Resource(uri)
	if err != nil {
		return nil, err
	}
	if _, err := definition.SkillFolder(t.Name); err != nil || t.home == nil || !offersSkills(t.home.Catalog) {
		return nil, ErrUnknown
	}
	t.Part, t.Item = upstream.PartSkills, t.home.Catalog.Skill(t.Name)
	if !s.Ruling(t).Visible() {
		return nil, ErrUnknown
	}
	return t, nil
}

// skillPath returns the path of a skill for rules; "" for other items.
func (t *Target) skillPath() string {
	if t.Part != upstream.PartSkills {
		return ""
	}
	return policy.SkillPath(t.Backend.Name(), t.Name)
}

// offersSkills reports whether an upstream has the extension for skills.
func offersSkills(c *upstream.Catalog) bool {
	return c.Offers("extensions", definition.ExtensionSkills) && c.Fresh[upstream.PartSkills].Has
}

// readsDirectories reports whether an upstream has resources/directory/read.
func readsDirectories(c *upstream.Catalog) bool {
	return c.Capabilities.IsTrue("extensions", definition.ExtensionSkills, "directoryRead")
}

// ReadsDirectories reports whether the upstream of a resource has resources/directory/read.
func (t *Target) ReadsDirectories() bool { return t.home != nil && readsDirectories(t.home.Catalog) }

// InSkill reports whether a resource is, or may be, a file of a skill: then its bytes must not
// change, because hosts compare them with the digest in the skill.
func (t *Target) InSkill() bool {
	return t.home != nil && offersSkills(t.home.Catalog) &&
		(strings.HasPrefix(t.Name, skillScheme) || len(t.home.Catalog.SkillsWith(t.Name)) > 0)
}

// Recognised reports whether InSkill is true for each file of the skill, at every process.
func (t *Target) Recognised() bool { return strings.HasPrefix(t.Name, skillScheme) || t.Item != nil }

// Withheld reports whether the subject does not see a skill although its rights for the skill
// itself show it, and the decision because of which it does not. entry is the skill as its upstream
// wrote it.
func (s *SubjectView) Withheld(t *Target, entry raw.Object) (by policy.Decision, is bool) {
	if s.Safeguards.Pinned && t.home.held(t.Name, entry) != "" {
		return policy.Decision{Rule: RulePinned}, true
	}
	file, ruling := deniedFile(s.Rights, t.home, entry)
	if file == "" {
		return policy.Decision{}, false
	}
	by, _ = ruling.Decide(raw.Object{}) // it needs no arguments: a file has none
	return by, true
}

// RulePinned stands for a rule in the records of a call that pinned policies hide.
const RulePinned = "pinned"

// held returns why pinned policies hide a skill; "" if they do not.
func (st *Stock) held(uri string, entry raw.Object) string {
	if resources, err := entry.Get("resources"); err != nil || resources[0] != '[' {
		return "its files have no digests (dynamic), so that they cannot be accepted"
	}
	reason, _ := st.settings.Pins.Held(st.Backend.Name(), uri, entry.Text())
	return reason
}

// deniedFile returns the file because of which a skill does not exist for a subject, with its
// ruling; "" if the subject may read all files, perhaps after an approval.
func deniedFile(rights *policy.Rights, st *Stock, entry raw.Object) (file string, ruling *policy.Ruling) {
	uri, _ := entry.String("uri")
	if ruling = rights.Bind(st.fileItem(uri)); !ruling.Visible() {
		return uri, ruling
	}
	for f := range definition.SkillFiles(entry) {
		if ruling = rights.Bind(st.fileItem(f.URI)); !ruling.Visible() {
			return f.URI, ruling
		}
	}
	return "", nil
}

// fileItem returns a resource of the upstream for policy.
func (st *Stock) fileItem(uri string) policy.Item {
	t := Target{Backend: st.Backend, Part: upstream.PartResources, Name: uri, home: st}
	return t.PolicyItem()
}

// skillFiles are the files of the skills of a stock.
type skillFiles struct {
	items *policy.Items
	ends  []int // in items, of the files of each skill
	n     int
}

// newSkillFiles collects the files of all skills.
func (st *Stock) newSkillFiles() *skillFiles {
	f := &skillFiles{}
	var list []policy.Item
	for i := range st.Catalog.Skills {
		entry := st.Catalog.Skills[i].Definition
		list = append(list, st.fileItem(st.Catalog.Skills[i].Name))
		for file := range definition.SkillFiles(entry) {
			if file.URI != st.Catalog.Skills[i].Name {
				list = append(list, st.fileItem(file.URI))
			}
		}
		f.ends = append(f.ends, len(list))
	}
	f.items, f.n = policy.NewItems(list), len(list)
	return f
}

// hideSkills clears the places of the skills with a file that the subject may not read.
func (s *SubjectView) hideSkills(st *Stock, places bitset) {
	first, end := st.part(upstream.PartSkills)
	if first == end {
		return
	}
	if !s.Rights.FilesDiffer(st.Backend.Name()) { // nearly always: then one file stands for all
		if !s.Rights.Bind(st.fileItem(st.Catalog.Skills[0].Name)).Visible() {
			for place := first; place < end; place++ {
				places.clear(place)
			}
		}
		return
	}
	files := st.files()
	visible := make(bitset, (files.n+7)/8)
	files.items.Visible(s.Rights, visible)
	at := 0
	for i, end := range files.ends {
		for ; at < end; at++ {
			if !visible.has(at) {
				places.clear(first + i)
			}
		}
	}
}

// renameSkill returns the edits of the URIs of a skill, besides its own, and of its _meta, which names
// the upstream.
func (t *Target) renameSkill(entry raw.Object) ([]raw.Edit, error) {
	edits, err := t.renameList(entry, "resources", t.renameURI)
	if err != nil {
		return nil, err
	}
	name := raw.Edit{Name: MetaUpstream, Value: raw.Quote(t.Backend.Name())}
	meta, err := entry.Object("_meta")
	if err == raw.ErrAbsent {
		meta, err = raw.Parse([]byte("{}"))
	}
	if err != nil {
		return nil, err
	}
	if meta, err = meta.With(name); err != nil {
		return nil, err
	}
	return append(edits, raw.Edit{Name: "_meta", Value: meta.Text()}), nil
}

// MetaUpstream is the member of the _meta of a skill on the merged endpoint that names its upstream.
const MetaUpstream = "junction/upstream"

// renameEntry renames all URIs of a skill in the result of skills/get.
func (t *Target) renameEntry(entry []byte) ([]byte, error) {
	return inObject(func(o raw.Object) ([]raw.Edit, error) {
		edits, err := t.renameSkill(o)
		if err != nil {
			return nil, err
		}
		own, err := t.renameMember(o, "uri", t.renameText)
		return append(own, edits...), err
	})(entry)
}

// Children returns the result of resources/directory/read without the entries that are no direct
// children of the directory, that occur twice, or that the subject may not read.
func (s *SubjectView) Children(t *Target, result raw.Object) (raw.Object, error) {
	list, err := result.Elements("resources")
	if err != nil {
		return result, fmt.Errorf("no resources: %w", err)
	}
	folder := strings.TrimSuffix(t.Name, "/") + "/"
	seen := map[string]bool{}
	var kept []byte
	n := 0
	for _, e := range list {
		o, err := raw.Parse(e)
		if err != nil {
			continue
		}
		uri, err := o.String("uri")
		name, below := strings.CutPrefix(uri, folder)
		if _, named := o.String("name"); err != nil || named != nil || !below || name == "" || name == "." ||
			name == ".." || strings.Contains(name, "/") || seen[uri] {
			continue
		}
		if seen[uri] = true; !s.Rights.Bind(t.home.fileItem(uri)).Visible() {
			continue
		}
		if n++; n > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, e...)
	}
	if n == len(list) {
		return result, nil
	}
	return result.With(raw.Edit{Name: "resources", Value: append(append([]byte{'['}, kept...), ']')})
}
