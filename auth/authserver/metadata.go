package authserver

import (
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// The scopes of this server: mcp gives access, and offline_access exists for clients that request
// it before they expect a refresh token. Every client receives one.
const (
	scopeMCP     = "mcp"
	scopeOffline = "offline_access"
)

var (
	scopes        = []string{scopeMCP, scopeOffline}
	grantTypes    = []string{"authorization_code", "refresh_token"}
	responseTypes = []string{"code"}
	assertionAlgs = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.PS256}
)

// document is the authorization server's metadata (RFC 8414, section 2). Its URLs come from the
// configuration, never from a request.
type document struct {
	Issuer                                 string                    `json:"issuer"`
	AuthorizationEndpoint                  string                    `json:"authorization_endpoint"`
	TokenEndpoint                          string                    `json:"token_endpoint"`
	RegistrationEndpoint                   string                    `json:"registration_endpoint,omitempty"`
	RevocationEndpoint                     string                    `json:"revocation_endpoint"`
	ScopesSupported                        []string                  `json:"scopes_supported"`
	ResponseTypesSupported                 []string                  `json:"response_types_supported"`
	ResponseModesSupported                 []string                  `json:"response_modes_supported"`
	GrantTypesSupported                    []string                  `json:"grant_types_supported"`
	CodeChallengeMethodsSupported          []string                  `json:"code_challenge_methods_supported"`
	TokenEndpointAuthMethodsSupported      []string                  `json:"token_endpoint_auth_methods_supported"`
	TokenEndpointAuthSigningAlgs           []jose.SignatureAlgorithm `json:"token_endpoint_auth_signing_alg_values_supported"`
	RevocationEndpointAuthMethodsSupported []string                  `json:"revocation_endpoint_auth_methods_supported"`
	RevocationEndpointAuthSigningAlgs      []jose.SignatureAlgorithm `json:"revocation_endpoint_auth_signing_alg_values_supported"`
	ClientIDMetadataDocumentSupported      bool                      `json:"client_id_metadata_document_supported,omitempty"`
	IssParameterSupported                  bool                      `json:"authorization_response_iss_parameter_supported"`
}

func (srv *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	methods := []string{"none", "private_key_jwt"}
	d := document{
		Issuer: srv.url, AuthorizationEndpoint: srv.url + "/oauth/authorize",
		TokenEndpoint: srv.url + "/oauth/token", RevocationEndpoint: srv.url + "/oauth/revoke",
		ScopesSupported: scopes, ResponseTypesSupported: responseTypes, ResponseModesSupported: []string{"query"},
		GrantTypesSupported:           grantTypes,
		CodeChallengeMethodsSupported: []string{"S256"}, TokenEndpointAuthMethodsSupported: methods,
		TokenEndpointAuthSigningAlgs:           assertionAlgs,
		RevocationEndpointAuthMethodsSupported: methods, RevocationEndpointAuthSigningAlgs: assertionAlgs,
		ClientIDMetadataDocumentSupported: srv.documents != nil, IssParameterSupported: true,
	}
	if srv.config.Clients.DCR != dcrOff {
		d.RegistrationEndpoint = srv.url + "/oauth/register"
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	reply(w, http.StatusOK, d)
}
