// Package pins holds the tool definitions that an operator has accepted, reads and writes their
// file, and reports tools whose definition has changed since.
package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"junction/proxy/canon"
	"junction/upstream/files"
	"junction/upstream/shell"
)

// Pins are the tool definitions that an operator has accepted, by upstream and by the upstream's
// own name. A pinned policy hides a tool whose definition is new or changed. Definitions reach the
// model, and a server may change them after an operator has reviewed them.
//
// Every change counts, except white space, the order of members and the escaping of strings
// (package canon). Pins are immutable. A nil *Pins, and Pins of a missing file, hide every tool.
type Pins struct {
	tools  map[string]map[string]pin
	none   bool   // the file does not exist yet
	config string // the value of --config in suggested commands
}

// pin is one accepted definition, as in the file.
type pin struct {
	Accepted   time.Time       `json:"accepted"`
	SHA256     string          `json:"sha256"`     // of the definition, in hex
	Definition json.RawMessage `json:"definition"` // canonical
}

// Definition is a tool's definition as clients see it: as the upstream sent it, or as corrected by
// upstream.Mended.
type Definition struct {
	Upstream, Name string
	Definition     []byte
}

// State is the result of comparing a definition with the accepted one.
type State string

const (
	StateNew      State = "new"      // never accepted
	StateChanged  State = "changed"  // another definition was accepted
	StateAccepted State = "accepted" // this definition was accepted
)

// maxPins bounds the file, in bytes.
const maxPins = 64 << 20

// pinsFile is the format of the file. A change of one definition changes only a few lines.
type pinsFile struct {
	Version   int                       `json:"version"`
	Upstreams map[string]map[string]pin `json:"upstreams"`
}

// Load reads a pins file. A missing file is not an error. A file whose definitions do not match
// their checksums is an error. config is the value of --config in suggested commands; "" leaves it out.
func Load(file, config string) (*Pins, error) {
	text, err := files.Read(file, maxPins)
	if errors.Is(err, fs.ErrNotExist) {
		return &Pins{none: true, config: config}, nil
	}
	if _, large := errors.AsType[*files.TooLargeError](err); large || errors.Is(err, files.ErrIrregular) {
		err = fmt.Errorf("%s is no regular file of at most %d MiB", file, maxPins>>20)
	} else if err != nil {
		err = fmt.Errorf("open %s: %w", file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pins: %w", err)
	}
	p, err := parsePins(text)
	if err != nil {
		return nil, fmt.Errorf("read the pins %s: %w", file, err)
	}
	p.config = config
	return p, nil
}

func parsePins(text []byte) (*Pins, error) {
	var f pinsFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("version %d is not one that this junction knows; it knows 1", f.Version)
	}
	for upstream, tools := range f.Upstreams {
		for name, t := range tools {
			var err error
			if t.Definition, err = canon.Text(t.Definition); err != nil {
				return nil, fmt.Errorf("the definition of %s of %s: %w", shell.Visible(name), shell.Visible(upstream),
					err)
			}
			if sum(t.Definition) != t.SHA256 {
				return nil, fmt.Errorf("the definition of %s of %s is not the one that was accepted: "+
					"its sha256 differs; take it out and accept it again", shell.Visible(name), shell.Visible(upstream))
			}
			tools[name] = t
		}
	}
	return &Pins{tools: f.Upstreams}, nil
}

// Held reports whether pinned policies hide a tool, and the reason for an operator.
func (p *Pins) Held(upstream, name string, definition []byte) (reason string, held bool) {
	state, accepted := p.State(upstream, name, definition)
	switch {
	case state == StateAccepted:
		return "", false
	case p == nil:
		return "its definition was not accepted, and no file says which are (pins)", true
	}
	tool := upstream + "/" + name // the server has chosen the name
	look := "; look at it with: " + shell.Junction(p.config, "pins", "diff", tool) + ", and then: " +
		shell.Junction(p.config, "pins", "accept", tool)
	switch {
	case p.none:
		return "no definition was accepted yet" + look, true
	case state == StateChanged:
		on := accepted.UTC().Format(time.DateOnly)
		return "its definition has changed since it was accepted on " + on + look, true
	}
	return "its definition was not accepted yet" + look, true
}

// State compares a definition with the accepted one. It also returns when that one was accepted;
// the zero time if there is none.
func (p *Pins) State(upstream, name string, definition []byte) (State, time.Time) {
	if p == nil {
		return StateNew, time.Time{}
	}
	known, ok := p.tools[upstream][name]
	if !ok {
		return StateNew, time.Time{}
	}
	if text, err := canon.Text(definition); err != nil || sum(text) != known.SHA256 {
		return StateChanged, known.Accepted
	}
	return StateAccepted, known.Accepted
}

// Exist reports whether the pins file exists.
func (p *Pins) Exist() bool { return p != nil && !p.none }

// Names returns the sorted names of an upstream's accepted tools; with "" the sorted upstreams with
// accepted tools.
func (p *Pins) Names(upstream string) []string {
	if upstream == "" {
		return slices.Sorted(maps.Keys(p.tools))
	}
	return slices.Sorted(maps.Keys(p.tools[upstream]))
}

// Accept returns a copy of p with these definitions accepted. Definitions that were already
// accepted keep their time; other definitions do not change. The error is for a definition that is
// not JSON.
func (p *Pins) Accept(list []Definition, now time.Time) (*Pins, error) {
	next := &Pins{tools: map[string]map[string]pin{}}
	for upstream, tools := range p.tools {
		next.tools[upstream] = maps.Clone(tools)
	}
	for _, d := range list {
		text, err := canon.Text(d.Definition)
		if err != nil {
			return nil, fmt.Errorf("the definition of %s of %s: %w", d.Name, d.Upstream, err)
		}
		if next.tools[d.Upstream] == nil {
			next.tools[d.Upstream] = map[string]pin{}
		}
		if known, ok := next.tools[d.Upstream][d.Name]; !ok || known.SHA256 != sum(text) {
			next.tools[d.Upstream][d.Name] = pin{now.UTC().Truncate(time.Second), sum(text), text}
		}
	}
	return next, nil
}

// Text returns the content of the file: sorted, with one member of a definition per line.
func (p *Pins) Text() []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(pinsFile{1, p.tools}); err != nil {
		panic(err) // the definitions are valid JSON
	}
	return text.Bytes()
}

// Write replaces the file atomically. Only the owner of the file can read it.
func (p *Pins) Write(file string) error {
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write the pins: %w", err)
	}
	if err := files.WriteSync(file, p.Text()); err != nil {
		return fmt.Errorf("write the pins: %w", err)
	}
	return nil
}

// Diff returns the difference between a definition and the accepted one, a line for each value or
// line of a text: "- " accepted, "+ " current. Invisible characters are made visible
// (shell.Visible).
func (p *Pins) Diff(d Definition) []string {
	now, err := canon.Text(d.Definition)
	if err != nil {
		return []string{"+ " + shell.Visible(string(d.Definition))}
	}
	var old []string
	if p != nil {
		if known, ok := p.tools[d.Upstream][d.Name]; ok {
			old = canon.Lines(nil, "", known.Definition)
		}
	}
	return canon.Differences(old, canon.Lines(nil, "", now))
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
