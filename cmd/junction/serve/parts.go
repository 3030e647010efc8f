package serve

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"junction/cmd/junction/base/config"
)

// part is a part of a running proxy, which owns its fields: other parts may read them, and none
// writes them.
type part interface {
	// Open acquires what the part needs with the configuration of the start. Close releases it,
	// also after an error.
	Open(c *config.Config) error
	// Prepare opens what the part needs beyond that with a configuration, and changes nothing that
	// is in force. The caller calls commit or drop of the result.
	Prepare(next *config.Config) (prepared, error)
	// Close releases what the part has acquired, and waits for its end.
	Close()
}

// prepared is what a part has prepared for a configuration. A nil function does nothing.
type prepared struct {
	use     func() // puts the configuration in force
	release func() // closes what Prepare has opened
}

// commit puts the configuration in force in the part. It cannot fail.
func (n prepared) commit() {
	if n.use != nil {
		n.use()
	}
}

// drop leaves the part as it was.
func (n prepared) drop() {
	if n.release != nil {
		n.release()
	}
}

// steady has the methods of a part that opens nothing, ignores a changed configuration, and has
// nothing to release.
type steady struct{}

// Open does nothing.
func (steady) Open(*config.Config) error { return nil }

// Prepare prepares nothing.
func (steady) Prepare(*config.Config) (prepared, error) { return prepared{}, nil }

// Close does nothing.
func (steady) Close() {}

// parts are the parts of a program in the order in which they are opened. The zero value has none.
type parts struct {
	list []part
	open int // how many of them are to be closed
}

// Open opens the parts. After an error, it opens no more of them.
func (ps *parts) Open(c *config.Config) error {
	for _, p := range ps.list {
		ps.open++
		if err := p.Open(c); err != nil {
			return err
		}
	}
	return nil
}

// Prepare prepares a configuration in each part. The result puts it in force. After an error, each
// part is as it was.
func (ps *parts) Prepare(next *config.Config) (commit func(), err error) {
	var all []prepared
	for _, p := range ps.list {
		one, err := p.Prepare(next)
		if err != nil {
			for _, done := range slices.Backward(all) {
				done.drop()
			}
			return nil, err
		}
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one.commit()
		}
	}, nil
}

// runner is a part that does something while the program serves.
type runner interface {
	// Run runs until ctx ends.
	Run(ctx context.Context) error
}

// Run starts each runner in a goroutine of group.
func (ps *parts) Run(ctx context.Context, group *errgroup.Group) {
	for _, p := range ps.list {
		if r, ok := p.(runner); ok {
			group.Go(func() error { return r.Run(ctx) })
		}
	}
}

// Close closes each part for which Open was called, the last one first. A second Close does
// nothing.
func (ps *parts) Close() {
	for ps.open > 0 {
		ps.open--
		ps.list[ps.open].Close()
	}
}
