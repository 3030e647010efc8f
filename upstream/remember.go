package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/raw"
)

// This file stores the last catalog of an upstream, so that after a restart of Junction clients see
// its tools before the upstream has started.

// Store keeps texts across restarts. stored.Dir implements it. A text belongs to an entry of the
// configuration (Config.Entry), and to a user if it is of one user.
type Store interface {
	// Load returns a text, or nil if there is none.
	Load(entry, user string) []byte
	// Save and Delete do not block. text is called later, on another goroutine.
	Save(entry, user string, text func() []byte)
	Delete(entry, user string)
}

// Entry identifies the server of a configuration entry, so that a catalog that was stored for
// another server is not used.
func (c Config) Entry(name string) string {
	text, _ := json.Marshal(struct {
		Name      string
		Command   []string
		Env       map[string]string
		Dir, URL  string
		Headers   map[string]string
		Auth      Auth
		Transport client.Transport
		Era       client.Era
		Questions Questions
		Inherit   command.Inherit `json:",omitempty"`
		// strings only: this cannot fail
	}{name, c.Command, c.Env, c.Dir, c.URL, c.Headers, c.Auth, c.Transport, c.Era, c.Questions, c.InheritEnv})
	return string(text)
}

// recall returns the stored catalog. It returns before if before was listed or nothing is stored.
func (c *catalogs) recall(before *Catalog) *Catalog {
	if c.options.Store == nil || !before.Listed.IsZero() {
		return before
	}
	text := c.options.Store.Load(c.entry, c.user)
	if text == nil {
		return before
	}
	stored, err := parseCatalog(text, c.options.Depth, c.options.Items, c.checks.begin())
	if err != nil {
		c.log.Warn("a stored catalog is ignored", "error", err)
		return before
	}
	return stored
}

// recallLater publishes the stored catalog of a user, and returns it; nil if there is none. It runs on the
// goroutine of the user's link, because the catalog may be large.
func (c *catalogs) recallLater() *Catalog {
	stored := c.recall(c.last())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !stored.Stored || !c.last().Listed.IsZero() || c.last().SignIn || c.closed {
		return nil
	}
	c.second = stored.second
	c.replace(stored)
	return stored
}

// expect begins with what a stored catalog shows. The dialer asks first in the era that the server has proven; if
// the server contradicts it twice, the dialer forgets it.
func (p *pool) expect(c *Catalog) {
	p.recallNeeds(c.second)
	if c.proven {
		p.dialer.Expect(c.Era)
	}
}

// endStoring makes the catalogs store nothing any more, because another pool has replaced theirs.
func (c *catalogs) endStoring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaced = true
}

// keepSecond stores the holders with a second process beside the catalog.
func (c *catalogs) keepSecond(holders []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.second = holders
	c.remember()
}

// remember stores the catalog that the server has listed. After a sign-out it deletes the stored
// catalog of the user. c.mu is held.
func (c *catalogs) remember() {
	switch cat := c.last(); {
	case c.options.Store == nil || c.closed || c.replaced:
	case cat.SignIn:
		c.options.Store.Delete(c.entry, c.user)
	case !cat.Listed.IsZero() && !cat.Stored:
		second := c.second
		c.options.Store.Save(c.entry, c.user, func() []byte { return cat.text(second) })
	}
}

// storedVersion is the format version of a stored catalog. Other versions are ignored.
const storedVersion = "1"

// text returns the catalog as JSON, with the holders that have a second process. Definitions keep their
// bytes.
func (c *Catalog) text(second []string) []byte {
	b := raw.AppendQuote([]byte(`{"v":`+storedVersion+`,"era":`), string(c.Era))
	b = strconv.AppendBool(append(b, `,"proven":`...), c.proven)
	b = strconv.AppendBool(append(b, `,"mirrors":`...), c.mirrors)
	b = raw.AppendQuote(append(b, `,"protocol":`...), c.Version)
	b = raw.AppendQuote(append(b, `,"instructions":`...), c.Instructions)
	b = strconv.AppendInt(append(b, `,"listed":`...), c.Listed.Unix(), 10)
	if c.Capabilities.Present() {
		b = append(append(b, `,"capabilities":`...), c.Capabilities.Text()...)
	}
	for p := range Parts {
		f := c.Fresh[p]
		b = strconv.AppendInt(append(b, `,"ttl`+strconv.Itoa(int(p))+`":`...), f.TTL.Milliseconds(), 10)
		b = strconv.AppendBool(append(b, `,"has`+strconv.Itoa(int(p))+`":`...), f.Has)
		b = strconv.AppendBool(append(b, `,"public`+strconv.Itoa(int(p))+`":`...), f.Public)
		b = append(raw.AppendQuote(append(b, ','), p.Method()), `:[`...)
		for i := range c.Items(p) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, c.Item(p, i).Definition.Text()...)
		}
		b = append(b, ']')
	}
	b = append(b, `,"loose":[`...) // as many as tools, because the repaired definitions do not show it
	for i := range c.Tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = raw.AppendQuote(b, c.Tools[i].Loose)
	}
	b = append(b, ']')
	if len(second) > 0 {
		b = append(b, `,"second":[`...)
		for i, holder := range second {
			if i > 0 {
				b = append(b, ',')
			}
			b = raw.AppendQuote(b, holder)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// parseCatalog parses a stored catalog. It checks each definition again, as if the server had just
// listed it.
func parseCatalog(text []byte, depth, maxItems int, k *checking) (*Catalog, error) {
	text, err := raw.Scan(text, depth+2)
	if err != nil {
		return nil, err
	}
	o, err := raw.Parse(text)
	if err != nil {
		return nil, err
	}
	if v, err := o.Get("v"); err != nil || string(v) != storedVersion {
		return nil, errors.New("another version of Junction has written it")
	}
	c := &Catalog{Stored: true, mirrors: o.IsTrue("mirrors"), proven: o.IsTrue("proven"), checking: k}
	era, _ := o.String("era")
	c.Era = client.Era(era)
	c.Version, _ = o.String("protocol")
	c.Instructions, _ = o.String("instructions")
	c.Capabilities, _ = o.Object("capabilities")
	listed, err := number(o, "listed")
	if c.Era != client.EraLegacy && c.Era != client.EraModern || err != nil {
		return nil, errors.New("it is not complete")
	}
	c.Listed = time.Unix(listed, 0)
	for p := range Parts {
		ttl, _ := number(o, "ttl"+strconv.Itoa(int(p)))
		c.Fresh[p] = Freshness{o.IsTrue("has" + strconv.Itoa(int(p))), time.Duration(ttl) * time.Millisecond,
			o.IsTrue("public" + strconv.Itoa(int(p)))}
		items, err := o.Elements(p.Method())
		if err != nil && !(err == raw.ErrAbsent && p == PartSkills) { // earlier versions did not store skills
			return nil, fmt.Errorf("%s: %w", p.Method(), err)
		}
		if len(items) > maxItems {
			return nil, fmt.Errorf("%s has more than %d items (limits.items)", p.Method(), maxItems)
		}
		c.index[p] = map[string]int{}
		for _, item := range items {
			c.add(p, item, 0)
		}
	}
	if c.checking = nil; k != nil && k.late {
		return nil, errors.New("checking its definitions takes too long")
	}
	loose, err := o.Elements("loose")
	if err == nil && len(loose) != len(c.Tools) {
		return nil, errors.New("it is not complete")
	}
	for i := range loose {
		if text, err := raw.String(loose[i]); err == nil && text != "" {
			c.Tools[i].Loose = text
		}
	}
	second, _ := o.Elements("second")
	for _, holder := range second[:min(len(second), maxOwn)] {
		if text, err := raw.String(holder); err == nil {
			c.second = append(c.second, text)
		}
	}
	return c, nil
}

func number(o raw.Object, name string) (int64, error) {
	v, err := o.Get(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(v), 10, 64)
}
