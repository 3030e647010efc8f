package remedy

import (
	"strings"
	"testing"
)

// TestOf has the output of real programs, shortened.
func TestOf(t *testing.T) {
	const where = " in /c/config.yaml.environment, and restart Junction"
	for _, tt := range []struct{ name, stderr, want string }{
		{"variable", "API_KEY environment variable is required\n", "set env: { API_KEY: … }"},
		{"one word", "Error: TOKEN environment variable is not set", "set env: { TOKEN: … }"},
		{"two", "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables",
			"set env: { SLACK_BOT_TOKEN: …, SLACK_TEAM_ID: … }"},
		{"list", "Error: Missing required environment variables:\n  - B_TOKEN\n  - A_URL\n\nSee the README.",
			"set env: { A_URL: …, B_TOKEN: … }"},
		{"stack", "/x/index.js:12\n    throw new Error('GITHUB_TOKEN is required');\n    ^\n\nError: GITHUB_TOKEN is required\n" +
			"    at main (/x/index.js:12:11) {\n  code: 'ERR_MISSING_ARGS'\n}\n\nNode.js v22.1.0", "set env: { GITHUB_TOKEN: … }"},
		{"KeyError", "Traceback (most recent call last):\n  File \"/x.py\", line 3, in <module>\n    KEY = os.environ['NOTION_KEY']\n" +
			"KeyError: 'NOTION_KEY'", "set env: { NOTION_KEY: … }"},
		{"Go", "required key JIRA_URL missing value", "set env: { JIRA_URL: … }"},
		{"set, but wrong", "WRONG_KEY is not set or empty", "correct the value of WRONG_KEY in env; if the entry takes it from the variables of Junction, correct it" + where},
		{"ours", "OUR_KEY is not set", "set inherit_env: [OUR_KEY], because a command gets only the variables that its entry names"},
		{"harmless", "Warning: LOG_LEVEL is not set, using info\nError: broken", ""},
		{"code", "Error: certificate\n  code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', required: true", "the server does not trust a certificate (UNABLE_TO_VERIFY_LEAF_SIGNATURE): " +
			"if a proxy of your network has made it, name the file of its CA in NODE_EXTRA_CA_CERTS" + where},
		{"Node behind a proxy with a CA", "TypeError: fetch failed\n  [cause]: Error: unable to get local issuer certificate {\n    code: 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'\n  }",
			"the server does not trust a certificate (UNABLE_TO_GET_ISSUER_CERT_LOCALLY): if a proxy of your network has made it, name the file of its CA in NODE_EXTRA_CA_CERTS" + where},
		{"Python behind a proxy with a CA", "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:1000)",
			"the server does not trust a certificate (CERTIFICATE_VERIFY_FAILED): if a proxy of your network has made it, name the file of its CA in SSL_CERT_FILE" + where},
		{"uvx behind a proxy with a CA", "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `https://pypi.org/simple/x/`\n  Caused by: error sending request for url (https://pypi.org/simple/x/)\n" +
			"  Caused by: client error (Connect)\n  Caused by: invalid peer certificate: UnknownIssuer",
			"uv does not trust the certificate of the registry (https://pypi.org, UnknownIssuer): if a proxy of your network has made it, name the file of its CA in SSL_CERT_FILE" + where},
		{"npm 404", "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/@acme%2fnope - Not found\nnpm error 404\n" +
			"npm error 404  '@acme/nope@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that you can also install from a\n",
			"there is no package or image @acme/nope: correct its name in command"},
		{"npm 404 of version 11", "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/@acme%2fnope\nnpm error 404\n" +
			"npm error 404  The requested resource '@acme/nope@*' could not be found or you do not have permission to access it.",
			"there is no package or image @acme/nope: correct its name in command"},
		{"npm 404, cut off", "npm ERR! 404 Not Found - GET https://registry.npmjs.org/@acme%2fnope - Not found",
			"there is no package or image @acme/nope: correct its name in command"},
		{"npm 404 of a registry with a path", "npm error code E404\nnpm error 404 Not Found - GET https://npm.example.com/api/npm/all/@acme%2fnope\nnpm error 404\n" +
			"npm error 404  The requested resource '@acme/nope@*' could not be found or you do not have permission to access it.",
			"there is no package or image @acme/nope: correct its name in command"},
		{"npm 404 of a registry with a path, cut off", "npm ERR! 404 Not Found - GET https://npm.example.com/api/npm/all/@acme%2fnope - Not found",
			"there is no package or image @acme/nope: correct its name in command"},
		{"npm 404 without a name", "npm error code E404\nnpm error 404 Not Found", "the registry of npm has no such package: correct its name in command, " +
			"or correct the registry, which npm config get registry shows"},
		{"pnpm 404", "ERR_PNPM_FETCH_404  GET https://registry.npmjs.org/no-such-mcp: Not Found - 404", "there is no package or image no-such-mcp: correct its name in command"},
		{"bunx 404", "error: GET https://registry.npmjs.org/no-such-mcp - 404", "there is no package or image no-such-mcp: correct its name in command"},
		{"uvx 0.13", "error: No solution found when resolving tool dependencies\n  cause: Because mcp-server-tmie was not found in the package registry and you require " +
			"mcp-server-tmie, we can conclude that your requirements are unsatisfiable.", "there is no package or image mcp-server-tmie: correct its name in command"},
		{"uvx 404", "error: Failed to fetch: `https://pypi.example.com/simple/no-such-mcp/`\n  cause: HTTP status client error (404 Not Found) for url (https://pypi.example.com/simple/no-such-mcp/)",
			"there is no package or image no-such-mcp: correct its name in command"},
		{"npm version", "npm error code ETARGET\nnpm error notarget No matching version found for left-pad@99.0.0.\nnpm error notarget In most",
			"the registry has the package left-pad, but not its version 99.0.0: correct the version in command"},
		{"npm offline", "npm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno ENOTFOUND",
			"npm cannot reach its registry (ENOTFOUND): check the network, the proxy (HTTPS_PROXY), and the registry, which npm config get registry shows"},
		{"npm behind a closed port", "npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error errno ECONNREFUSED\n" +
			"npm error FetchError: request to http://127.0.0.1:1/some-mcp failed, reason: connect ECONNREFUSED 127.0.0.1:1\n    at emitErrorEvent (node:_http_client:101:11)\n" +
			"npm error   port: 1,\nnpm error }\nnpm error If you are behind a proxy, please make sure that the 'proxy' config is set properly.",
			"npm cannot reach its registry (ECONNREFUSED, http://127.0.0.1:1): check the network, the proxy (HTTPS_PROXY), and the registry, which npm config get registry shows"},
		{"npm behind a proxy with a CA", "npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error errno SELF_SIGNED_CERT_IN_CHAIN\nnpm error request to https://registry.npmjs.org/x failed, reason: self-signed certificate in certificate chain",
			"npm does not trust the certificate of its registry (SELF_SIGNED_CERT_IN_CHAIN): if a proxy of your network has made it, name the file of its CA in NODE_EXTRA_CA_CERTS" + where},
		{"npm without a sign-in", "npm error code E401\nnpm error Unable to authenticate, your authentication token seems to be invalid.",
			"the registry of npm refuses the package (E401): sign in with npm login, or correct the registry, which npm config get registry shows"},
		{"npx twice at once", "npm error code ENOTEMPTY\nnpm error syscall rename\nnpm error path /root/.npm/_npx/1/node_modules/zod",
			"the downloads of npx are damaged: delete the folder ~/.npm/_npx, which npx makes again"},
		{"npx without a part", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /root/.npm/_npx/1f/node_modules/x/index.js\n\nNode.js v20.20.2",
			"the package that npx has downloaded lacks zod: delete the folder ~/.npm/_npx, which npx makes again"},
		{"another version of Node.js", "npm warn EBADENGINE Unsupported engine {\nnpm warn EBADENGINE   package: 'needs-node@1.0.0',\nnpm warn EBADENGINE   required: { node: '>=99' },\n" +
			"npm warn EBADENGINE   current: { node: 'v20.20.2', npm: '11.19.1' }\nnpm warn EBADENGINE }\n/x.js:2\nTypeError: Cannot read properties of undefined (reading 'x')\n\nNode.js v20.20.2",
			"the package needs-node@1.0.0 needs another version of Node.js (node >=99): install that, or write the full path of its npx into command"},
		{"another version of Node.js, and a variable", "npm warn EBADENGINE   package: 'x@1.0.0',\nnpm warn EBADENGINE   required: { node: '>=99' },\nError: API_KEY is required", "set env: { API_KEY: … }"},
		{"another version of Node.js is forbidden", "npm error code EBADENGINE\nnpm error engine Unsupported engine\nnpm error engine Not compatible with your version of node/npm: needs-node@1.0.0\n" +
			"npm error notsup Not compatible with your version of node/npm: needs-node@1.0.0\nnpm error notsup Required: {\"node\":\">=99\"}\nnpm error notsup Actual:   {\"npm\":\"11.19.1\",\"node\":\"v20.20.2\"}",
			"the package needs-node@1.0.0 needs another version of Node.js (>=99): install that, or write the full path of its npx into command"},
		{"an old Node.js", "/x/undici/index.js:5\nReferenceError: File is not defined\n    at x\n\nNode.js v18.20.4\n",
			"the server needs a newer Node.js than v18.20.4, which does not know File: install one, or write the full path of a newer one into command"},
		{"an old Node.js without a module", "Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite\n    at x",
			"Node.js has no module node:sqlite: install a newer Node.js, or write the full path of a newer one into command"},
		{"an old Node.js for npm", "ERROR: npm v10.9.0 is known not to run on Node.js v14.21.3.  This version of npm supports the following node versions: `^18.17.0 || >=20.5.0`.",
			"npm v10.9.0 does not run with Node.js v14.21.3: install a newer Node.js, or write the full path of a newer npx into command"},
		{"npm without a program", "npm error could not determine executable to run", ""},
		{"uvx", "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because mcp-server-tmie was not found in the package registry\n" +
			"      and you require mcp-server-tmie, we can conclude that your requirements\n      are unsatisfiable.",
			"there is no package or image mcp-server-tmie: correct its name in command"},
		{"uvx version", "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because there is no version of mcp-server-time==99 and you\n" +
			"      require mcp-server-time==99, we can conclude", "the registry has the package mcp-server-time, but not its version 99: correct the version in command"},
		{"uvx offline", "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `https://pypi.org/simple/x/`",
			"the registry of packages cannot be reached (https://pypi.org): check the network and the proxy settings"},
		{"pip", "ERROR: Could not find a version that satisfies the requirement nope-mcp (from versions: none)\n" +
			"ERROR: No matching distribution found for nope-mcp", "there is no package or image nope-mcp: correct its name in command"},
		{"docker", "Unable to find image 'mcp/nope:latest' locally\ndocker: Error response from daemon: pull access denied for mcp/nope, repository " +
			"does not exist", "there is no package or image mcp/nope: correct its name in command"},
		{"docker without its daemon", "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n\nRun 'docker run --help' for more information",
			"Docker does not run (unix:///var/run/docker.sock): start Docker Desktop, or the service of Docker with systemctl start docker; Junction then connects by itself"},
		{"docker 29 without its daemon", "docker: failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory",
			"Docker does not run (unix:///var/run/docker.sock): start Docker Desktop, or the service of Docker with systemctl start docker; Junction then connects by itself"},
		{"docker without the right", "docker: permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Head \"http://%2Fvar%2Frun%2Fdocker.sock/_ping\": dial unix: connect: permission denied",
			"this user may not use Docker: add the user to the group docker, and log in again"},
		{"sh", "sh: 1: uvx: not found", "the command needs another program: install uv, or write the full path of uvx into command"},
		{"bash", "bash: line 1: my-server: command not found", "the command needs another program: install my-server, or write its full path into command"},
		{"env", "/usr/bin/env: ‘node’: No such file or directory", "the command needs another program: install Node.js, or write the full path " +
			"of node into command"},
		{"node file", "Error: Cannot find module '/srv/x.js'\n    at x {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}",
			"there is no file /srv/x.js: correct its path in command"},
		{"node package", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /x.js",
			"the Node package zod is not installed: run npm install where the server is"},
		{"python file", "python3: can't open file '/srv/x.py': [Errno 2] No such file or directory", "there is no file /srv/x.py: correct its path in command"},
		{"python module", "/usr/bin/python3: No module named mcp_server_time", "the Python module mcp_server_time is not installed: install it for " +
			"the Python of command, or use uvx"},
		{"the Python SDK 2 for a server of version 1", "Traceback (most recent call last):\n    raise ModuleNotFoundError(_MESSAGE, name=__name__)\nModuleNotFoundError: No module named 'mcp.server.fastmcp'. " +
			"This is mcp 2.x, where FastMCP was renamed to MCPServer or pin 'mcp<2' to keep running v1 code.",
			"the server needs version 1 of the Python package mcp: put --with 'mcp<2' after uvx in command, or install 'mcp<2' for the Python of command"},
		{"an early Python SDK 2", "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
			"the server needs version 1 of the Python package mcp: put --with 'mcp<2' after uvx in command, or install 'mcp<2' for the Python of command"},
		{"Node without a host", "Error: getaddrinfo ENOTFOUND db.example.com\n    at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {\n  hostname: 'db.example.com'\n}",
			"the server cannot resolve the host db.example.com: check the network, and the setting that names the host (command, env)"},
		{"Node without a name server", "Error: getaddrinfo EAI_AGAIN api.example.com", "the server cannot resolve the host api.example.com: check the network, and the setting that names the host (command, env)"},
		{"Python without a host", "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>", "the server cannot resolve a host: check the network, and the setting that names the host (command, env)"},
		{"Go without a host", "dial tcp: lookup db.example.com on 127.0.0.53:53: no such host", "the server cannot resolve the host db.example.com: check the network, and the setting that names the host (command, env)"},
		{"a service that is not there", "Error: connect ECONNREFUSED 10.0.0.1:5432", "the server cannot connect to 10.0.0.1:5432: start what listens there, or correct the setting that names it (command, env)"},
		{"argparse", "usage: x [-h] --repository R\nx: error: the following arguments are required: --repository", "add the argument --repository to command"},
		{"usage", "Usage: mcp-server-filesystem <allowed-directory> [more]", "the program shows its usage: correct the arguments in command"},
		{"folder of the command", "Error accessing directory /data/x: Error: ENOENT: no such file or directory, stat '/data/x'\n    at async",
			"create /data/x, or correct it in command"},
		{"folder of a Python server", "ERROR:mcp_server_git.server:/data/x does not exist", "create /data/x, or correct it in command"},
		{"folder of the filesystem server", "Warning: Cannot access directory /data/x, skipping\nError: None of the specified directories are accessible",
			"create /data/x, or correct it in command"},
		{"folder", "FileNotFoundError: [Errno 2] No such file or directory: '/var/y'", "create /var/y, or correct the setting that names it (command, env, dir)"},
		{"port", "Error: listen EADDRINUSE: address already in use :::3000", "another process uses the port 3000: stop it, or give the server another port"},
		{"nothing", "panic: runtime error: index out of range", ""},
		{"empty", "", ""},
		{"control characters", "npm error 404  'a\x1b[31mb@*' is not in this registry.", "there is no package or image a[31mb: correct its name in command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Process{Command: []string{"npx", "x", "/data/x"}, Env: map[string]string{"WRONG_KEY": "canary-value"}, Stderr: tt.stderr,
				Ours: func(name string) bool { return name == "OUR_KEY" }, Variables: "/c/config.yaml.environment"}
			if got := Of(&p); got != tt.want {
				t.Errorf("Of = %q\n  want %q", got, tt.want)
			}
		})
	}
}

// TestOfAVariableInTheForeground: Junction reads no file with variables there.
func TestOfAVariableInTheForeground(t *testing.T) {
	p := Process{Stderr: "code: 'DEPTH_ZERO_SELF_SIGNED_CERT'"}
	if got := Of(&p); !strings.HasSuffix(got, "in NODE_EXTRA_CA_CERTS where Junction starts, and restart Junction") {
		t.Errorf("Of = %q", got)
	}
}

// TestOfAPack: junction-pack names all mistakes of a pack itself.
func TestOfAPack(t *testing.T) {
	p := Process{Command: []string{"/opt/junction-pack", "serve", "/srv/tools"},
		Stderr: "junction-pack: /srv/tools/pack.yaml:1: tools: must be a mapping (key: value), not a list\n"}
	const want = "correct the pack; this command lists its mistakes: junction-pack check /srv/tools"
	if got := Of(&p); got != want {
		t.Errorf("Of = %q\n  want %q", got, want)
	}
	p.Stderr = "junction-pack: /srv/tools/pack.yaml:3: tools.a.env.KEY: the environment variable PETS_KEY is not set; " +
		"set it, or write ${PETS_KEY:-default}\n"
	p.Ours = func(name string) bool { return name == "PETS_KEY" }
	if got := Of(&p); !strings.Contains(got, "inherit_env: [PETS_KEY]") || strings.Contains(got, "junction-pack") {
		t.Errorf("a variable does not reach the pack: Of = %q", got)
	}
	if p.Stderr = "panic: runtime error\n"; Of(&p) != "" {
		t.Error("a failure of the program has the same remedy")
	}
}

// TestOfIsShort: a server writes whatever it likes.
func TestOfIsShort(t *testing.T) {
	for _, stderr := range []string{
		"npm error 404 '" + strings.Repeat("a", 4000) + "@*' is not in this registry.",
		strings.Repeat("A_B", 1300) + " is required",
		"missing: " + strings.Repeat("A_B C_D E_F G_H I_J K_L M_N O_P ", 100),
	} {
		if got := Of(&Process{Stderr: stderr}); len(got) > 300 {
			t.Errorf("%d bytes: %s", len(got), got)
		}
	}
}

// TestTwice has the reports of servers that run twice and cannot, and lines that are about something else.
func TestTwice(t *testing.T) {
	for text, want := range map[string]string{
		"ok\nError: listen EADDRINUSE: address already in use :::3000\nbye": "Error: listen EADDRINUSE: address already in use :::3000",
		"OSError: [Errno 98] Address already in use":                        "OSError: [Errno 98] Address already in use",
		"Browser is already in use for /p, use --isolated":                  "Browser is already in use for /p, use --isolated",
		"Another instance of the server is running":                         "Another instance of the server is running",
		"sqlite3.OperationalError: database is locked":                      "sqlite3.OperationalError: database is locked",
		"could not acquire lock on /x":                                      "could not acquire lock on /x",
		"listening on 3000":                                                 "",
		"the process uses 3 threads":                                        "",
		"":                                                                  "",
	} {
		if got := Twice(text); got != want {
			t.Errorf("Twice(%q) = %q, want %q", text, got, want)
		}
	}
	if got := Twice(strings.Repeat("x", 5000) + " EADDRINUSE " + strings.Repeat("y", 5000)); len(got) > 600 {
		t.Errorf("a report has %d bytes", len(got))
	}
}
