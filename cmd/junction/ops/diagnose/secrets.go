package diagnose

import (
	"time"

	"junction/upstream/prose"
)

// A Secret is where a secret of an upstream is kept, and how old it is. It never has the secret.
type Secret struct {
	Key  string `json:"key"`  // below the entry, such as headers.Authorization
	From string `json:"from"` // such as: the program op
	// when the program printed it last, or the file was changed; absent if that is not known
	At    time.Time `json:"at,omitzero"`
	Error string    `json:"error,omitempty"` // why the last run of the program has failed
}

// Shown returns the secret in one line.
func (s *Secret) Shown(now time.Time) string {
	text := s.Key + ": from " + s.From
	if !s.At.IsZero() {
		text += ", " + prose.Age(now.Sub(s.At)) + " old"
	}
	if s.Error != "" {
		text += "; the last run has failed: " + s.Error
	}
	return prose.Flat(text)
}

// addSecrets adds a finding for each secret that is in use although its program has failed since.
func (p *Proxy) addSecrets(d *Diagnosis, only selection) {
	for name := range p.Config().Origins {
		for _, s := range p.Secrets(name) {
			if only.has(name) && s.Error != "" && !s.At.IsZero() {
				d.find(name, Finding{Text: s.Shown(time.Now()), Advice: "run the program by hand, as the user of " +
					"Junction; until it prints a secret, Junction uses the one that it has"})
			}
		}
	}
}
