package front

import (
	"cmp"
	"time"
)

// Sessions is the sessions section, for legacy clients. A session ID contains the negotiated state,
// sealed, so a session survives a restart.
type Sessions struct {
	// The keys that seal session ids and cursors, one on each line. The first key seals, all are
	// accepted. Junction makes this file with one key if it does not exist; by default it is
	// junction/key in your state directory. Replicas share the keys.
	//
	// If the directory is not writable, Junction warns, and uses a key that lasts until it exits.
	KeyFile string `yaml:"key_file" members:"hot"`
	// Free the memory of a session after this time. The session continues when its client comes
	// back. Default 30m.
	Idle time.Duration `yaml:"idle"`
	// End a session for good with its first request after this time. A larger value is for sessions
	// that begin later. Default 720h.
	MaxAge time.Duration `yaml:"max_age"`
}

func (c Sessions) withDefaults() Sessions {
	c.Idle = cmp.Or(c.Idle, 30*time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, 720*time.Hour)
	return c
}
