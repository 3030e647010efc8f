package oauth

import (
	"net/url"
	"slices"
	"strings"
)

// sameIssuer reports whether two texts name one authorization server: they are equal, or differ only
// by the slash after an empty path. Both forms have the same metadata, so that nothing of another
// server is accepted. Servers publish both forms (Google, Box and Expo among them). Every other
// difference needs the issuer in the configuration.
func sameIssuer(a, b string) bool {
	return a == b || rootless(a) == rootless(b) && a != "" && b != ""
}

// rootless returns an issuer without the slash after an empty path.
func rootless(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil || u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return issuer
	}
	return strings.TrimSuffix(issuer, "/")
}

// spellings returns the forms of an issuer for which sameIssuer is true. Rows of the store may have
// either.
func spellings(issuer string) []string {
	if bare := rootless(issuer); bare != issuer {
		return []string{issuer, bare}
	}
	if u, err := url.Parse(issuer); err == nil && u.Path == "" && u.Host != "" {
		return []string{issuer, issuer + "/"}
	}
	return []string{issuer}
}

// entraHosts are the hosts of Microsoft Entra ID. Its addresses for several tenants have metadata
// with a placeholder instead of a tenant.
var entraHosts = []string{"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"}

// entraTenants are the addresses of Entra ID that belong to no single tenant.
var entraTenants = []string{"/common/v2.0", "/organizations/v2.0", "/consumers/v2.0"}

// forTenants reports whether an issuer is an address of Entra ID for several tenants, and stated is
// the issuer that its metadata name.
func forTenants(issuer, stated string) bool {
	u, err := url.Parse(issuer)
	return err == nil && u.Scheme == "https" && slices.Contains(entraHosts, u.Host) &&
		slices.Contains(entraTenants, u.Path) && stated == "https://"+u.Host+"/{tenantid}/v2.0"
}
