package front

import (
	"cmp"
	"time"
)

// Sessions is the sessions section, for legacy clients. A session ID contains the negotiated state,
// sealed, so a session survives a restart.
type Sessions struct {
	// KeyFile holds the key that seals session IDs and cursors. A missing file is created. Replicas
	// share one file. Default: junction/key in the user's state directory. If the directory is not
	// writable, Junction warns and uses a key that lasts until it exits.
	KeyFile string `yaml:"key_file"`
	// Idle is the time after which a session without requests or streams leaves memory. The session
	// resumes when its client returns. Default 30m.
	Idle time.Duration `yaml:"idle"`
	// MaxAge is the time after which a session ends permanently. Default 720h.
	MaxAge time.Duration `yaml:"max_age"`
}

func (c Sessions) withDefaults() Sessions {
	c.Idle = cmp.Or(c.Idle, 30*time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, 720*time.Hour)
	return c
}
