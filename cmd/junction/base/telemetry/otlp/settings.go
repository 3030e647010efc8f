package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// Settings configure where and how a signal is sent.
type Settings struct {
	Signal   string // traces, metrics or logs
	Endpoint *url.URL
	Headers  map[string]string // may contain secrets
	Gzip     bool
	Timeout  time.Duration // of one export, with its attempts
	TLS      *tls.Config   // nil is the default
}

// FromEnvironment reads the variables of OpenTelemetry for a signal: traces, metrics or logs. It
// returns nil if the signal is not exported: OTEL_EXPORTER_OTLP_ENDPOINT is not set, the exporter
// of the signal is none, or OTEL_SDK_DISABLED is true. The error names the variable.
func FromEnvironment(signal string, getenv func(string) (string, bool)) (*Settings, error) {
	get := func(name string) string { v, _ := getenv(name); return strings.TrimSpace(v) }
	// own is the variable of the signal, or else that of all signals
	own := func(name string) (string, string) {
		variable := "OTEL_EXPORTER_OTLP_" + strings.ToUpper(signal) + "_" + name
		if v := get(variable); v != "" {
			return v, variable
		}
		return get("OTEL_EXPORTER_OTLP_" + name), "OTEL_EXPORTER_OTLP_" + name
	}
	exporter := "OTEL_" + strings.ToUpper(signal) + "_EXPORTER"
	switch v := get(exporter); {
	case strings.EqualFold(get("OTEL_SDK_DISABLED"), "true"), v == "none", v == "prometheus":
		return nil, nil
	case v != "" && v != "otlp":
		return nil, fmt.Errorf("%s is %q; set it to otlp or none", exporter, v)
	}
	text, variable := own("ENDPOINT")
	if text == "" {
		if get(exporter) == "" {
			return nil, nil
		}
		text, variable = "http://localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	s := &Settings{Signal: signal, Timeout: 10 * time.Second}
	if err := s.at(text, variable); err != nil {
		return nil, err
	}
	if v, variable := own("PROTOCOL"); v != "" && v != "http/protobuf" {
		return nil, fmt.Errorf("%s is %q; set it to http/protobuf, the only protocol that is supported", variable, v)
	}
	switch v, variable := own("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		s.Gzip = true
	default:
		return nil, fmt.Errorf("%s is %q; set it to gzip or none", variable, v)
	}
	if v, variable := own("TIMEOUT"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%s is %q; set it to a number of milliseconds", variable, v)
		}
		s.Timeout = time.Duration(n) * time.Millisecond
	}
	var err error
	v, variable := own("HEADERS")
	if s.Headers, err = headers(v); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	s.TLS, err = trust(own)
	return s, err
}

// at sets the endpoint. A URL for all signals has no path for the signal.
func (s *Settings) at(text, variable string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s is no URL; set it to one such as http://localhost:4318", variable)
	}
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		u.Path = path.Join("/", u.Path, "v1", s.Signal)
	} else if u.Path == "" {
		u.Path = "/"
	}
	s.Endpoint = u
	return nil
}

// headers reads a list such as a=b,c=d. Its values may be escaped like a URL. The error does not
// repeat the text, which may contain secrets.
func headers(text string) (map[string]string, error) {
	list := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, fmt.Errorf("entry %d is no header; write name=value, with %%2C for a comma", i+1)
		}
		list[name] = value
	}
	return list, nil
}

// trust reads the certificates. It returns nil if there are none.
func trust(own func(string) (string, string)) (*tls.Config, error) {
	c := &tls.Config{}
	file, variable := own("CERTIFICATE")
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", variable, file)
		}
	}
	certificate, variable := own("CLIENT_CERTIFICATE")
	if key, _ := own("CLIENT_KEY"); certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		c.Certificates = []tls.Certificate{pair}
	} else if file == "" {
		return nil, nil
	}
	return c, nil
}
