package serve

import (
	"bytes"

	"junction/cmd/junction/base/config"
	"junction/proxy/pins"
)

// pinned is the content of the pins file.
type pinned struct {
	*common
	steady
	name string     // of the pins file; "" without one. No reload changes it
	pins *pins.Pins // nil without a pins file. Owned by the start, then by reloadLoop
}

// Open reads the pins.
func (p *pinned) Open(c *config.Config) (err error) {
	if p.name = c.Pins; p.name != "" {
		p.pins, err = p.read()
	}
	return err
}

func (p *pinned) read() (*pins.Pins, error) { return pins.Load(p.name, config.Named(p.file)) }

// changed returns the pins if their file has changed; nil if not. A broken file is logged and
// otherwise ignored.
func (p *pinned) changed() *pins.Pins {
	if p.name == "" {
		return nil
	}
	pins, err := p.read()
	if err != nil {
		p.failed(err)
		return nil
	}
	if p.pins != nil && bytes.Equal(pins.Text(), p.pins.Text()) && pins.Exist() == p.pins.Exist() {
		return nil
	}
	return pins
}

// failed logs why changed pins are not in force.
func (p *pinned) failed(err error) {
	p.log.Error("pins not reloaded; the last good ones stay in force", "error", err)
}

// use replaces the pins for the next commit.
func (p *pinned) use(pins *pins.Pins) { p.pins = pins }
