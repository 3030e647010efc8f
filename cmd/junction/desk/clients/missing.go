package clients

import (
	"os/exec"
	"slices"
	"strings"

	"junction/cmd/junction/base/revision"
)

// A Missing is a variable without a value that an entry refers to.
type Missing struct {
	Name  string
	About string // what it is, if the client's file says so
	Open  bool   // it is no secret by its name
}

// Missing returns the variables without a default that the entry refers to, and that getenv does not
// have.
func (e *Entry) Missing(getenv func(string) (string, bool)) (list []Missing) {
	for _, v := range e.values() {
		for _, p := range v {
			same := func(m Missing) bool { return m.Name == p.text }
			if (Value{p}).lacks(getenv) && !slices.ContainsFunc(list, same) {
				list = append(list, Missing{p.text, p.about, !secretName(p.text)})
			}
		}
	}
	return list
}

// lacks reports whether the value has a variable without a value and a default.
func (v Value) lacks(getenv func(string) (string, bool)) bool {
	return slices.ContainsFunc(v, func(p part) bool {
		if p.kind != variable || p.fallback != "" {
			return false
		}
		value, _ := getenv(p.text)
		return value == ""
	})
}

// MissingVariable returns a variable without a value of which only the name is known.
func MissingVariable(name string) Missing { return Missing{Name: name, Open: !secretName(name)} }

// setVariable begins a note about a variable without a value.
const setVariable = "set the environment variable "

// Unnote removes the notes about variables without a value, for a person who is asked for the values.
func (e *Entry) Unnote() { e.Notes = WithoutVariables(e.Notes) }

// WithoutVariables returns the notes that are not about a variable without a value.
func WithoutVariables(notes []string) []string {
	about := func(note string) bool { return strings.HasPrefix(note, setVariable) }
	return slices.DeleteFunc(slices.Clone(notes), about)
}

// Fill replaces the references to a variable by its value, which Render moves to a file like a secret.
func (e *Entry) Fill(name, value string) {
	fill := func(v Value) Value {
		v = slices.Clone(v)
		for i, p := range v {
			if p.kind == variable && p.text == name {
				v[i] = part{kind: secret, text: value, label: name}
			}
		}
		return v
	}
	for i, v := range e.Command {
		e.Command[i] = fill(v)
	}
	for _, m := range []map[string]Value{e.Env, e.Headers} {
		for key, v := range m {
			m[key] = fill(v)
		}
	}
	e.URL, e.Dir = fill(e.URL), fill(e.Dir)
	e.Notes = slices.DeleteFunc(e.Notes, func(note string) bool {
		return strings.HasPrefix(note, setVariable+name+" ")
	})
}

// Found returns the places of the user's servers of the clients that this machine seems to have: their
// file exists, or the folder that they make for it, or a program that adds entries itself.
func (h Home) Found(exists func(path string) bool) []Place {
	var list []Place
	for _, c := range table() {
		p, ok := h.Place(c, User)
		if !ok {
			continue
		}
		folder := p.File[:strings.LastIndexAny(p.File, `/\`)]
		found := exists(p.File) || !revision.SamePath(folder, h.Dir) && exists(folder)
		if !found && c.program != "" {
			_, err := exec.LookPath(c.program)
			found = err == nil
		}
		if found {
			list = append(list, p)
		}
	}
	return list
}
