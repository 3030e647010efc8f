package proxy

import (
	"bytes"
	"cmp"
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
	"strings"
	"time"

	"junction/upstream/raw"
)

// Pins are the definitions of tools that an operator has accepted, by upstream and by the upstream's own name. Where a policy is pinned, a tool whose definition is
// another one, or was never accepted, is held back: what a server says of its tools goes to models, and may change after somebody has looked at it.
//
// Any change counts but white space, the order of members and the way in which a string is escaped: see canonical. Pins are never modified. The nil *Pins, and one
// of a file that does not exist, hold everything back.
type Pins struct {
	tools map[string]map[string]pin
	none  bool // there is no file yet
}

// pin is one accepted definition.
type pin struct {
	sum        string // SHA-256 of the canonical definition, in hex
	definition []byte // canonical
	accepted   time.Time
}

// Definition is a tool's definition as its upstream wrote it.
type Definition struct {
	Upstream, Name string
	Definition     []byte
}

// PinState says how a definition compares with the accepted one.
type PinState string

const (
	PinNew      PinState = "new"      // never accepted
	PinChanged  PinState = "changed"  // another one was accepted
	PinAccepted PinState = "accepted" // this one was
)

// maxPins bounds the file.
const maxPins = 64 << 20

// pinsFile is the form of the file. It is written so that a change of one definition is a change of a few lines.
type pinsFile struct {
	Version   int                           `json:"version"`
	Upstreams map[string]map[string]pinText `json:"upstreams"`
}

type pinText struct {
	Accepted   time.Time       `json:"accepted"`
	SHA256     string          `json:"sha256"`
	Definition json.RawMessage `json:"definition"`
}

// LoadPins reads a file. One that does not exist is no error; one that was changed by hand, so that a definition is not what was accepted, is.
func LoadPins(file string) (*Pins, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Pins{none: true}, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxPins) {
		err = fmt.Errorf("%s is no regular file of at most %d MiB", file, maxPins>>20)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pins: %w", err)
	}
	p, err := parsePins(text)
	if err != nil {
		return nil, fmt.Errorf("read the pins %s: %w", file, err)
	}
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
	p := &Pins{tools: map[string]map[string]pin{}}
	for upstream, tools := range f.Upstreams {
		p.tools[upstream] = map[string]pin{}
		for name, t := range tools {
			definition, err := canonical(t.Definition)
			if err != nil {
				return nil, fmt.Errorf("the definition of %s of %s: %w", Visible(name), Visible(upstream), err)
			}
			if sum(definition) != t.SHA256 {
				return nil, fmt.Errorf("the definition of %s of %s is not the one that was accepted: its sha256 differs; take it out and accept it again", Visible(name), Visible(upstream))
			}
			p.tools[upstream][name] = pin{t.SHA256, definition, t.Accepted}
		}
	}
	return p, nil
}

// held reports whether a tool must be held back, and the reason for an operator.
func (p *Pins) held(upstream, name string, definition []byte) (reason string, held bool) {
	state, accepted := p.State(upstream, name, definition)
	command := "junction pins accept " + upstream + "/" + name
	switch {
	case state == PinAccepted:
		return "", false
	case p == nil:
		return "its definition was not accepted, and no file says which are (pins)", true
	case p.none:
		return "no definition was accepted yet; look at it with junction pins diff, and then: " + command, true
	case state == PinChanged:
		return fmt.Sprintf("its definition has changed since it was accepted on %s; look at it with junction pins diff %s/%s, and then: %s",
			accepted.UTC().Format(time.DateOnly), upstream, name, command), true
	}
	return fmt.Sprintf("its definition was not accepted yet; look at it with junction pins diff %s/%s, and then: %s", upstream, name, command), true
}

// State compares a definition with the accepted one, and says when that was accepted; the zero time where none was.
func (p *Pins) State(upstream, name string, definition []byte) (PinState, time.Time) {
	if p == nil {
		return PinNew, time.Time{}
	}
	known, ok := p.tools[upstream][name]
	if !ok {
		return PinNew, time.Time{}
	}
	if text, err := canonical(definition); err != nil || sum(text) != known.sum {
		return PinChanged, known.accepted
	}
	return PinAccepted, known.accepted
}

// Exist reports whether there is a file.
func (p *Pins) Exist() bool { return p != nil && !p.none }

// Names returns the accepted tools of an upstream, sorted; with "" all upstreams that have any.
func (p *Pins) Names(upstream string) []string {
	if upstream == "" {
		return slices.Sorted(maps.Keys(p.tools))
	}
	return slices.Sorted(maps.Keys(p.tools[upstream]))
}

// Accept returns pins in which these definitions are accepted. Those that were accepted already keep their time, and the others stay what they were. The error is that
// of a definition that is not JSON.
func (p *Pins) Accept(list []Definition, now time.Time) (*Pins, error) {
	next := &Pins{tools: map[string]map[string]pin{}}
	for upstream, tools := range p.tools {
		next.tools[upstream] = maps.Clone(tools)
	}
	for _, d := range list {
		text, err := canonical(d.Definition)
		if err != nil {
			return nil, fmt.Errorf("the definition of %s of %s: %w", d.Name, d.Upstream, err)
		}
		if next.tools[d.Upstream] == nil {
			next.tools[d.Upstream] = map[string]pin{}
		}
		if known, ok := next.tools[d.Upstream][d.Name]; !ok || known.sum != sum(text) {
			next.tools[d.Upstream][d.Name] = pin{sum(text), text, now.UTC().Truncate(time.Second)}
		}
	}
	return next, nil
}

// Text is what the file holds: sorted, and one member of a definition to a line.
func (p *Pins) Text() []byte {
	b := []byte(`{"version":1,"upstreams":{`)
	for i, upstream := range slices.Sorted(maps.Keys(p.tools)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(raw.AppendQuote(b, upstream), ":{"...)
		for k, name := range p.Names(upstream) {
			t := p.tools[upstream][name]
			if k > 0 {
				b = append(b, ',')
			}
			b = append(raw.AppendQuote(b, name), fmt.Sprintf(`:{"accepted":%q,"sha256":%q,"definition":`, t.accepted.Format(time.RFC3339), t.sum)...)
			b = append(append(b, t.definition...), '}')
		}
		b = append(b, '}')
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(b, "}}"...), "", "  "); err != nil {
		panic(err) // it is made of JSON
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// Write replaces the file, whole or not at all. Nobody but its owner may read it.
func (p *Pins) Write(file string) error {
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write the pins: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".pins-*")
	if err != nil {
		return fmt.Errorf("write the pins: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(p.Text())
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write the pins: %w", err)
	}
	return nil
}

// Diff says how a definition differs from the accepted one, a line for each value or line of a text: "- " what was accepted, "+ " what is there now. Nothing in it
// is hidden from a person: see Visible.
func (p *Pins) Diff(d Definition) []string {
	now, err := canonical(d.Definition)
	if err != nil {
		return []string{"+ " + Visible(string(d.Definition))}
	}
	var old []string
	if p != nil {
		if known, ok := p.tools[d.Upstream][d.Name]; ok {
			old = flat(nil, "", known.definition)
		}
	}
	return differences(old, flat(nil, "", now))
}

// Definitions returns the definitions of all tools that the configuration does not leave out, in the order of upstreams and of their lists. They alias the catalogs.
func (s *Server) Definitions() []Definition {
	var list []Definition
	for _, b := range s.world.Load().backends {
		catalog, config := b.Catalog(), b.Config()
		for i := range catalog.Tools {
			t := &catalog.Tools[i]
			if _, offered := config.Offers(t.Name); offered {
				list = append(list, Definition{b.Name(), t.Name, t.Definition.Text()})
			}
		}
	}
	return list
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// canonical returns a JSON text without white space, with members in the order of their names and strings escaped in one way. Numbers stay as they were written, and
// so do strings that are not UTF-8. Members of one name stay in their order. So two texts have one canonical text only if every reader reads the same.
func canonical(text []byte) ([]byte, error) {
	text, err := raw.Scan(text, raw.DefaultDepth)
	if err != nil {
		return nil, err
	}
	return appendCanonical(make([]byte, 0, len(text)), text)
}

func appendCanonical(b, text []byte) ([]byte, error) {
	switch text[0] {
	case '"':
		return appendString(b, text), nil
	case '{':
		o, err := raw.Parse(text)
		if err != nil {
			return nil, err
		}
		b = append(b, '{')
		for i, m := range sortedMembers(o) {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(append(append(b, m.key...), ':'), m.value); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case '[':
		list, err := raw.Elements(text)
		if err != nil {
			return nil, err
		}
		b = append(b, '[')
		for i, v := range list {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, v); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	return append(b, text...), nil
}

func appendString(b, text []byte) []byte {
	s, err := raw.String(text)
	if err != nil {
		return append(b, text...)
	}
	return raw.AppendQuote(b, s)
}

// canonicalMember is a member with its key in canonical form.
type canonicalMember struct{ key, value []byte }

func sortedMembers(o raw.Object) []canonicalMember {
	var list []canonicalMember
	for _, m := range o.Members() {
		list = append(list, canonicalMember{appendString(nil, m.Key), m.Value})
	}
	slices.SortStableFunc(list, func(a, b canonicalMember) int { return bytes.Compare(a.key, b.key) })
	return list
}

// flat appends a line for each value in a canonical text, with the path to it; a text of several lines has as many.
func flat(lines []string, path string, text []byte) []string {
	switch text[0] {
	case '{':
		o, err := raw.Parse(text)
		if err != nil || len(o.Members()) == 0 {
			break
		}
		for _, m := range o.Members() {
			key := strings.Trim(string(m.Key), `"`)
			if strings.ContainsAny(key, `\."[]: `) {
				key = string(m.Key)
			}
			if path != "" {
				key = path + "." + key
			}
			lines = flat(lines, key, m.Value)
		}
		return lines
	case '[':
		list, err := raw.Elements(text)
		if err != nil || len(list) == 0 {
			break
		}
		short := true // a list of words is a line
		for _, v := range list {
			short = short && v[0] != '{' && v[0] != '['
		}
		if short && len(text) <= 200 {
			break
		}
		for i, v := range list {
			lines = flat(lines, fmt.Sprintf("%s[%d]", path, i), v)
		}
		return lines
	case '"':
		if parts := strings.SplitAfter(string(text[1:len(text)-1]), `\n`); len(parts) > 1 && !strings.Contains(string(text), `\\`) {
			for _, part := range parts {
				lines = append(lines, Visible(cmp.Or(path, "(all)"))+` | `+Visible(part))
			}
			return lines
		}
	}
	return append(lines, Visible(cmp.Or(path, "(all)"))+": "+Visible(string(text)))
}

// maxDifferences bounds the work of comparing two definitions line by line; longer ones are shown whole.
const maxDifferences = 16 << 20

// differences returns the lines that are only in old, and those only in now, each in its place.
func differences(old, now []string) (out []string) {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	n, m := len(old), len(now)
	common := make([][]int, 1) // common[i][k] is how many lines of old[i:] and now[k:] can be paired
	if n*m <= maxDifferences {
		common = make([][]int, n+1)
		for i := n; i >= 0; i-- {
			common[i] = make([]int, m+1)
			for k := m - 1; k >= 0 && i < n; k-- {
				if old[i] == now[k] {
					common[i][k] = common[i+1][k+1] + 1
				} else {
					common[i][k] = max(common[i+1][k], common[i][k+1])
				}
			}
		}
	}
	i, k := 0, 0
	for i < n || k < m {
		switch {
		case i < n && k < m && old[i] == now[k] && len(common) > 1:
			i, k = i+1, k+1
		case i < n && (k == m || len(common) == 1 || common[i+1][k] >= common[i][k+1]):
			out = append(out, "- "+old[i])
			i++
		default:
			out = append(out, "+ "+now[k])
			k++
		}
	}
	return out
}
