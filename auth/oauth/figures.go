package oauth

import "time"

// Figures are the renewals of the tokens for an upstream by this process: those of all users together, if each user
// has a token.
type Figures struct {
	Renewals, Failures int64
	Expires            time.Time // of the token that all callers share; zero if there is none, or if it is unknown
}

// Figures returns the figures of an upstream since the start.
func (c *Client) Figures(name string) Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.figures[name]
}

// count counts a renewal, or one that has failed.
func (c *Client) count(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.figures[name]
	if f.Renewals++; err != nil {
		f.Renewals--
		f.Failures++
	}
	c.figures[name] = f
}

// noteExpiry notes the expiry of a token that all callers share.
func (c *Client) noteExpiry(name string, u Upstream, expires time.Time) {
	if !u.Shared {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.figures[name]
	f.Expires = expires
	c.figures[name] = f
}
