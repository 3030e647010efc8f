package call

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
)

// TLSAdvice returns what to do about an error of TLS, for a URL that a person typed; "" for another error.
func TLSAdvice(err error) string {
	switch {
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS at this port: write http://, or correct the port"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "this machine does not trust the certificate: install its CA, or name a file with the CA in " +
			"SSL_CERT_FILE"
	case errors.As(err, new(x509.HostnameError)):
		return "the certificate is of another host: correct the host of the URL"
	case errors.As(err, new(x509.CertificateInvalidError)):
		return "the certificate is not valid: ask the operator of Junction, and check the clock of this machine"
	}
	return ""
}
