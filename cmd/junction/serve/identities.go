package serve

import (
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/identity"
	"junction/upstream"
)

// identities signs who calls, for servers with identity.
type identities struct {
	*common
	sealing *sealing
	inForce *inForce
	signer  func() *identity.Signer // of the key of sealing, once it is open
}

func newIdentities(c *common, s *sealing, f *inForce) *identities {
	return &identities{c, s, f, sync.OnceValue(func() *identity.Signer { return identity.New(s.key, time.Now) })}
}

// sign is upstream.Options.Identity. The issuer is public_url, without which no configuration has such a server.
func (i *identities) sign(audience string, of upstream.Identified) (string, error) {
	return i.signer().Sign(i.inForce.reach.Load().config.PublicURL, audience, of)
}

// public returns the public keys; nil if no server gets a statement.
func (i *identities) public() []jose.JSONWebKey {
	c := i.inForce.reach.Load().config
	if c.PublicURL == "" || !c.Signs() {
		return nil
	}
	keys, err := i.signer().Public()
	if err != nil {
		i.log.Warn("the keys for the identity of callers cannot be published", "error", err)
	}
	return keys
}
