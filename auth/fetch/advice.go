package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
)

// Advice returns what the operator can do about an error of a request to an identity provider or an
// authorization server, without a full stop; "" if the error says it.
func Advice(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "renew the server's certificate, or correct the clock of this machine"
	}
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.CertificateInvalidError)):
		return "name the file with the authority that has signed the server's certificate: outbound.ca_file"
	case errors.As(err, new(x509.HostnameError)):
		return "use the host for which the server's certificate is valid"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the server speaks no TLS at this port: check scheme and port"
	case errors.As(err, new(*net.DNSError)):
		return "the host does not exist, or the name service does not answer: check the host"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: start it, or check host and port"
	}
	return ""
}
