package config

// This file says for each key of the file what the change of its value does while a proxy runs.
// TestEveryKeyHasAnEffect finds a key without a row.

// An effect is what the changed value of a key does. All but restarts take effect at once, unless the
// reload is refused in part. Then two files decide, and the effect says how.
type effect uint8

const (
	// inside: each key below has an effect of its own.
	inside effect = iota + 1
	// restarts: the old value stays until a restart.
	restarts
	// waits: the old value stays until the file can be loaded as a whole.
	waits
	// both: the values of both files decide, and the stricter one counts (stricter).
	both
	// neither: the key decides who comes in. An entry that differs in it is not in force.
	neither
)

// effects has the effect of each key. The keys below one that is not listed here have its effect.
var effects = map[string]effect{
	"listen":          restarts,
	"public_url":      waits, // a restart, if there is auth.oauth
	"admin":           restarts,
	"metrics":         restarts,
	"allowed_origins": both,
	"allowed_hosts":   both,
	"shutdown_grace":  restarts,
	"drain_delay":     restarts,
	"storage":         restarts,
	"replicas":        restarts,
	"outbound":        restarts,
	"log":             restarts,
	"audit":           waits,
	"limits":          restarts,
	"sessions":        restarts,
	"catalog":         waits,
	"defaults":        waits,
	"pins":            restarts,

	"names":            inside,
	"names.max_length": both,
	"names.separator":  both,
	"names.app_tools":  both,

	"auth":                    inside,
	"auth.none":               both,
	"auth.trusted_proxies":    both,
	"auth.scope_capabilities": both, // a new scope needs a restart, if there is auth.oauth

	"auth.api_keys":           inside,
	"auth.api_keys.name":      neither,
	"auth.api_keys.hash":      neither,
	"auth.api_keys.cidrs":     neither,
	"auth.api_keys.endpoints": neither,
	"auth.api_keys.expires":   neither,

	"auth.jwt":                 inside,
	"auth.jwt.issuer":          neither,
	"auth.jwt.audiences":       neither,
	"auth.jwt.audience_claim":  neither,
	"auth.jwt.required_scopes": neither,
	"auth.jwt.required_claims": neither,
	"auth.jwt.claims":          neither,
	"auth.jwt.jwks_url":        neither,
	"auth.jwt.algorithms":      neither,
	"auth.jwt.clock_skew":      neither,
	"auth.jwt.require_at_jwt":  neither,

	"auth.introspection":                 inside,
	"auth.introspection.issuer":          neither,
	"auth.introspection.audiences":       neither,
	"auth.introspection.audience_claim":  neither,
	"auth.introspection.required_scopes": neither,
	"auth.introspection.required_claims": neither,
	"auth.introspection.claims":          neither,
	"auth.introspection.endpoint":        neither,
	"auth.introspection.client_id":       neither,
	"auth.introspection.client_secret":   waits,

	// The server keeps its section until a restart. Users of a provider that differs do not come in.
	"auth.oauth":                                    restarts,
	"auth.oauth.name":                               restarts,
	"auth.oauth.clients":                            restarts,
	"auth.oauth.tokens":                             restarts,
	"auth.oauth.limits":                             restarts,
	"auth.oauth.identity_providers":                 inside,
	"auth.oauth.identity_providers.id":              neither,
	"auth.oauth.identity_providers.name":            waits,
	"auth.oauth.identity_providers.issuer":          neither,
	"auth.oauth.identity_providers.client_id":       neither,
	"auth.oauth.identity_providers.client_secret":   waits,
	"auth.oauth.identity_providers.scopes":          waits,
	"auth.oauth.identity_providers.parameters":      waits,
	"auth.oauth.identity_providers.claims":          neither,
	"auth.oauth.identity_providers.subject_claims":  neither,
	"auth.oauth.identity_providers.required_claims": neither,
	"auth.oauth.identity_providers.email_domains":   neither,

	"upstreams":                   inside,
	"upstreams.*":                 inside,
	"upstreams.*.enabled":         both,
	"upstreams.*.prefix":          both,
	"upstreams.*.expose":          both,
	"upstreams.*.tools":           both,
	"upstreams.*.capabilities":    both,
	"upstreams.*.command":         waits,
	"upstreams.*.env":             waits,
	"upstreams.*.inherit_env":     waits,
	"upstreams.*.dir":             waits,
	"upstreams.*.sandbox":         waits,
	"upstreams.*.url":             waits,
	"upstreams.*.headers":         waits,
	"upstreams.*.transport":       waits,
	"upstreams.*.era":             waits,
	"upstreams.*.isolation":       waits,
	"upstreams.*.questions":       waits,
	"upstreams.*.idle_stop":       waits,
	"upstreams.*.stateful":        waits,
	"upstreams.*.warm":            waits,
	"upstreams.*.max_links":       waits,
	"upstreams.*.concurrency":     waits,
	"upstreams.*.timeout":         waits,
	"upstreams.*.max_timeout":     waits,
	"upstreams.*.connect_timeout": waits,
	"upstreams.*.instructions":    waits,
	"upstreams.*.cache":           waits,

	"upstreams.*.auth":                        inside,
	"upstreams.*.auth.mode":                   neither, // who sees the upstream
	"upstreams.*.auth.scopes":                 waits,
	"upstreams.*.auth.client_id":              waits,
	"upstreams.*.auth.client_secret":          waits,
	"upstreams.*.auth.issuer":                 waits,
	"upstreams.*.auth.authorization_endpoint": waits,
	"upstreams.*.auth.token_endpoint":         waits,
	"upstreams.*.auth.resource":               waits,
	"upstreams.*.auth.params":                 waits,

	"endpoints":             inside,
	"endpoints.*":           inside,
	"endpoints.*.upstreams": both,
	"endpoints.*.surface":   neither,
	"endpoints.*.match":     neither,
	"endpoints.*.catalog":   waits,
	"endpoints.*.eras":      waits,
	"endpoints.*.always":    waits,

	// policy.Both joins the policies of both files.
	"policies":              both,
	"policies.name":         both,
	"policies.match":        both,
	"policies.enforced":     both,
	"policies.endpoints":    both,
	"policies.capabilities": both,
	"policies.rules":        both,
	"policies.redact":       both,
	"policies.validate":     both,
	"policies.pinned":       both,
	"policies.limits":       both,
	"policies.catalog":      both,
	"policies.always":       both,
}
