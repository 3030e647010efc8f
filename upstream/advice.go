package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"junction/upstream/jsonrpc"
	"junction/upstream/remedy"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// advice returns what the operator can do about an upstream that cannot be reached.
func advice(err error, upstream string, c *Config) string {
	var (
		confined *stdio.SandboxError
		status   *transport.StatusError
		exit     *stdio.ExitError
		noise    *stdio.NoiseError
	)
	switch {
	case errors.As(err, &confined) && confined.Permanent:
		return "run Junction where the kernel can enforce it, or remove require: true to start the command without " +
			"a part of its sandbox"
	case errors.As(err, &confined): // the error says what to do
		return ""
	case errors.As(err, new(*LackError)): // the error says what to do
		return ""
	case errors.As(err, &status):
		return adviceOfStatus(status, upstream, c)
	case errors.Is(err, stdio.ErrNoProgram):
		return c.ForProgram(Running)
	case errors.Is(err, fs.ErrNotExist):
		return c.forMissing()
	case errors.Is(err, fs.ErrPermission):
		return adviceOfPermission(c)
	case errors.As(err, &exit):
		return adviceOfExit(exit, c)
	case errors.As(err, &noise):
		return adviceOfNoise[noise.Kind]
	case errors.Is(err, errLate) || errors.Is(err, errNoConnection) || errors.Is(err, context.DeadlineExceeded):
		if c.Kind().Process && remedy.Installs(c.Program()) {
			return c.Kind().Downloads
		}
		return c.Kind().Silent
	}
	return cmp.Or(adviceOfNetwork(err, c), adviceOfAnswer(err))
}

// adviceOfPermission returns what the operator can do about a program that may not be run.
func adviceOfPermission(c *Config) string {
	if c.Sandbox != nil {
		return "let Junction run that program: chmod +x, or another user; if it can, name the folder of the " +
			"program, or of its interpreter, in sandbox.read"
	}
	return "Junction may not run that program: " + ForMode
}

// adviceOfExit returns what the operator can do about a command that has ended.
func adviceOfExit(exit *stdio.ExitError, c *Config) string {
	if exit.Killed {
		return "another program or the system has killed the process; if this machine lacks memory, the log of the " +
			"system says so"
	}
	if text := remedyOf(exit, c); text != "" {
		return text
	}
	if c.Sandbox != nil {
		return "run the command by hand; if it works there, its sandbox denies what it needs: name files in " +
			"sandbox.read and sandbox.write, ports in sandbox.tcp"
	}
	return "run the command by hand and read its output: it must wait for MCP on its standard input"
}

// adviceOfNetwork returns what the operator can do about a connection that failed; "" for other errors.
func adviceOfNetwork(err error, c *Config) string {
	var lookup *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: start it, or check host and port of url"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the server does not speak TLS at this port: write http:// in url if it is meant to, or correct the port"
	case c.Kind().Closed != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)):
		return c.Kind().Closed
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "the host does not exist: check url"
	case errors.As(err, &lookup):
		return "this machine cannot look up names now: check its network and its name server"
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)),
		errors.As(err, new(x509.CertificateInvalidError)):
		return "this machine does not trust the server's certificate: check the host in url, or install its CA " +
			"(SSL_CERT_FILE names a file of them)"
	}
	return ""
}

// adviceOfAnswer returns what the operator can do about an answer that is an error, or cannot be used; "" for
// other errors.
func adviceOfAnswer(err error) string {
	switch {
	case errors.As(err, new(*transport.MemoryError)) && !errors.Is(err, transport.ErrInvalid):
		return "have the server list less, or raise limits.bodies"
	case errors.As(err, new(*jsonrpc.Error)):
		return "this is an error of the server: read its log or documentation"
	case errors.Is(err, transport.ErrInvalid):
		return "the server violates the protocol: update it, or choose another era"
	}
	return ""
}

// adviceOfNoise is the advice about a server that writes something else than messages.
var adviceOfNoise = map[stdio.Noise]string{
	stdio.NoiseText: "start the server for MCP over stdio, which may need an argument such as stdio; its log " +
		"belongs to its standard error",
	stdio.NoiseFramed:   "update the server, or report it to its author: messages of MCP over stdio have no header",
	stdio.NoiseIndented: "have the server write each message in one line, without line breaks and indentation",
}

// adviceOfStatus returns what the operator can do about an HTTP status.
func adviceOfStatus(status *transport.StatusError, upstream string, c *Config) string {
	scopes, _ := status.Lacks()
	set := false
	for name := range c.Headers {
		set = set || strings.EqualFold(name, "Authorization")
	}
	mode := c.Auth.Mode.Row()
	asked, asks := askedMode(status)
	switch code := status.Status; {
	case asks && mode.Owner == OwnerNobody:
		return asked.About(asked.Suggest, upstream)
	case code == 403 && len(scopes) > 0:
		return fill(mode.Advice.Lacks, upstream, scopes)
	case (code == 401 || code == 403) && set:
		return "the server rejects the header Authorization: replace the token, which may have expired or lack a " +
			"permission"
	case code == 401:
		return mode.About(mode.Advice.Refused, upstream)
	case code == 403:
		return "the server requires authentication: " + mode.About(mode.Advice.Set, upstream)
	case code == 404 || code == 405:
		return "the path of url is probably wrong; common paths are /mcp and /sse"
	case code == 429:
		return "the server limits the rate of requests: Junction tries again by itself; others who use the same " +
			"token or address may share the limit"
	case code/100 == 3 && status.RedirectsToSignIn():
		return "the server requires authentication: " + mode.About(mode.Advice.Set, upstream) +
			"; if it does not offer MCP at this address, correct url"
	case status.HasResult:
		return "the server violates HTTP: a result needs the status 200; update the server, or report it to its author"
	case code >= 500:
		return "the server failed: read its log"
	case code/100 == 2:
		return "the url leads to a web page, not to an MCP server: check the path of url"
	}
	return "check url and headers"
}

// remedyOf returns what the last output of a command tells about its end; "" if it tells nothing.
func remedyOf(exit *stdio.ExitError, c *Config) string {
	ours := func(name string) bool {
		_, there := os.LookupEnv(name)
		return there
	}
	return remedy.Of(&remedy.Process{Command: c.Command, Env: c.Env, Stderr: exit.Stderr, Ours: ours,
		Variables: os.Getenv(ServiceVariables)})
}

// ServiceVariables is the environment variable with the path of the file from which a service of the user has
// read its variables. The service sets it for itself, so that errors name the file.
const ServiceVariables = "JUNCTION_SERVICE_VARIABLES"
