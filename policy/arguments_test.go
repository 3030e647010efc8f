package policy_test

// argumentStories are about conditions on arguments, and about URIs.
var argumentStories = []story{
	{"where, for an allow: text that matches, and nothing else", `
- name: all
  rules: [{ allow: { tools: t__run, where: { command: ["git *", { re: "^ls( -[al]+)?$" }] } } }]
`, []row{
		{"local", "tool t__run", `{"command":"git status"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"git a\nb/c"}`, "allow all rules[0]"}, // * is any character
		{"local", "tool t__run", `{"\u0063ommand":"\u0067it x"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"ls -la"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"ls -la\n"}`, "deny"},
		{"local", "tool t__run", `{"command":"ls -la; rm"}`, "deny"},
		{"local", "tool t__run", `{"command":"git"}`, "deny"},
		{"local", "tool t__run", `{"command":" git x"}`, "deny"},
		{"local", "tool t__run", `{"command":"Git x"}`, "deny"},
		{"local", "tool t__run", `{"command":"gіt x"}`, "deny"}, // a Cyrillic i
		{"local", "tool t__run", `{"command":""}`, "deny"},
		{"local", "tool t__run", `{"command":null}`, "deny"},
		{"local", "tool t__run", `{"command":["git x"]}`, "deny"},
		{"local", "tool t__run", `{"command":{"0":"git x"}}`, "deny"},
		{"local", "tool t__run", `{"command":1}`, "deny"},
		{"local", "tool t__run", `{"command":true}`, "deny"},
		{"local", "tool t__run", `{"other":"git x"}`, "deny"},
		{"local", "tool t__run", `{}`, "deny"},
		{"local", "tool t__run", "", "deny"},
		{"local", "tool t__run", `{"command":"git x","command":"git y"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"git x","Command":"rm"}`, "ambiguous"},
		{"local", "tool t__run", `{"Command":"git x"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"git x","comm\u0061nd":"rm"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"git x","command\u0000":"rm"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"git x","other":1,"other":2}`, "allow all rules[0]"}, // nobody reads other
		{"local", "tool t__run", `{"command":"git \ud800"}`, "ambiguous"},
		{"local", "tool t__run", "{\"command\":\"git \xff\"}", "ambiguous"},
		{"local", "tool t__run", `{"command":"git \u0000x"}`, "deny"}, // in C it ends here
		{"local", "tool t__run", "{\"command\":\"git \uFFFD\"}", "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"git \ud83d\ude00"}`, "allow all rules[0]"},
		{"local", "tool t__other", `{"command":"git x"}`, "deny"},
		{"local", "prompt t__run", `{"command":"git x"}`, "deny"},
	}},
	{"where: every entry must hold", `
- name: all
  rules:
    - allow: { tools: t__run, where: { command: "git *", cwd: "/srv/*" } }
    - deny: { tools: t__run, where: { command: "*push*", cwd: "*/prod" } }
`, []row{
		{"local", "tool t__run", `{"command":"git log","cwd":"/srv/a"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"cwd":"/srv/a","command":"git log"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"git log"}`, "deny"},
		{"local", "tool t__run", `{"command":"git log","cwd":"/etc"}`, "deny"},
		{"local", "tool t__run", `{"command":"git push","cwd":"/srv/a"}`, "allow all rules[0]"},
		{"local", "tool t__run", `{"command":"git push","cwd":"/srv/prod"}`, "deny all rules[1]"},
		{"local", "tool t__run", `{"command":"git push","cwd":["/srv/prod"]}`, "deny all rules[1]"},
	}},
	{"where, for a deny: what matches, and what cannot be judged", `
- name: all
  rules:
    - deny: { tools: t__run, where: { command: ["rm *", { re: "(?i)sudo" }] } }
    - deny: { tools: t__port, where: { port: "22" } }
    - deny: { tools: t__port, where: { port: "1e3" } }
    - deny: { tools: t__flag, where: { flag: "true" } }
    - allow: { upstreams: t }
    - deny: { tools: t__id, where: { id: "*993" } }
    - deny: { tools: t__id, where: { id: "0" } }
`, []row{
		{"local", "tool t__run", `{"command":"rm -rf /"}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":"\u0072m\u0020-rf /"}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"comm\u0061nd":"rm -rf /"}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":"a && SuDo b"}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":"ls"}`, "allow all rules[4]"},
		{"local", "tool t__run", `{}`, "allow all rules[4]"},
		{"local", "tool t__run", `{"command":null}`, "allow all rules[4]"},
		{"local", "tool t__run", `{"command":["ls"]}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":{}}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":[]}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":7}`, "allow all rules[4]"},
		{"local", "tool t__run", `{"command":"rm x\u0000 "}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":"ls\u0000sudo"}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"command":"ls\u0000"}`, "allow all rules[4]"},
		{"local", "tool t__run", `{"command":"ls","COMMAND":"rm x"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"ls","command":"rm x"}`, "ambiguous"},
		{"local", "tool t__run", `{"command":"\udc00rm x"}`, "ambiguous"},
		{"local", "tool t__port", `{"port":22}`, "deny all rules[1]"},
		{"local", "tool t__port", `{"port":"22"}`, "deny all rules[1]"},
		{"local", "tool t__port", `{"port":22.0}`, "deny all rules[1]"},
		{"local", "tool t__port", `{"port":2.2e1}`, "deny all rules[1]"},
		{"local", "tool t__port", `{"port":220E-1}`, "deny all rules[1]"},
		{"local", "tool t__port", `{"port":222}`, "allow all rules[4]"},
		{"local", "tool t__port", `{"port":-22}`, "allow all rules[4]"},
		{"local", "tool t__port", `{"port":1e999}`, "deny all rules[1]"}, // no number to most readers
		{"local", "tool t__port", `{"port":1000}`, "deny all rules[2]"},
		{"local", "tool t__port", `{"port":1e3}`, "deny all rules[2]"},
		{"local", "tool t__id", `{"id":9007199254740993}`, "deny all rules[5]"}, // and ...992 to many readers
		{"local", "tool t__id", `{"id":-0}`, "deny all rules[6]"},
		{"local", "tool t__id", `{"id":0.00}`, "deny all rules[6]"},
		{"local", "tool t__id", `{"id":1e-400}`, "deny all rules[6]"},
		{"local", "tool t__id", `{"id":10}`, "allow all rules[4]"},
		{"local", "tool t__flag", `{"flag":true}`, "deny all rules[3]"},
		{"local", "tool t__flag", `{"flag":"true"}`, "deny all rules[3]"},
		{"local", "tool t__flag", `{"flag":false}`, "allow all rules[4]"},
		{"local", "tool t__flag", `{"flag":{"a":1}}`, "deny all rules[3]"},
	}},
	{"where, for an ask: as for a deny", `
- name: all
  rules:
    - ask: { tools: t__pay, where: { amount: { re: "^[0-9]{4,}" } } }
    - allow: { tools: t__pay }
    - ask: { tools: t__order, where: { /item/price: "9*" } }
    - allow: { tools: t__order }
`, []row{
		{"local", "tool t__pay", `{"amount":12345}`, "ask all rules[0]"},
		{"local", "tool t__pay", `{"amount":"12345"}`, "ask all rules[0]"},
		{"local", "tool t__pay", `{"amount":1.2345e4}`, "ask all rules[0]"},
		{"local", "tool t__pay", `{"amount":{"euro":12345}}`, "ask all rules[0]"},
		{"local", "tool t__order", `{"item":{"price":99}}`, "ask all rules[2]"},
		{"local", "tool t__order", `{"item":"{\"price\":99}"}`, "ask all rules[2]"},
		{"local", "tool t__order", `{"item":[{"price":99}]}`, "ask all rules[2]"},
		{"local", "tool t__order", `{"item":{"price":1}}`, "allow all rules[3]"},
		{"local", "tool t__pay", `{"amount":12}`, "allow all rules[1]"},
		{"local", "tool t__pay", `{"amount":null}`, "allow all rules[1]"},
		{"local", "tool t__pay", `{}`, "allow all rules[1]"},
	}},
	{"where: into the arguments", `
- name: all
  rules:
    - deny: { tools: t__run, where: { /options/cwd: "/etc*" } }
    - deny: { tools: t__move, where: { /files/*/path: "*.env" } }
    - deny: { tools: t__odd, where: { "/a~1b/c~0d/0": x } }
    - allow: { tools: t__read, where: { /paths/*: "/srv/*" } }
    - allow: { tools: t__first, where: { /paths/0: "/srv/*" } }
    - allow: { tools: t__deep, where: { /a/*/b/*: "x" } }
    - allow: { tools: [t__run, t__move, t__odd, t__index] }
    - deny: { tools: t__index, where: { /list/01: x } }
    - deny: { tools: t__index, where: { /list/-: y } }
`, []row{
		{"local", "tool t__run", `{"options":{"cwd":"/etc/x"}}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"options":{"cwd":"/srv"}}`, "allow all rules[6]"},
		{"local", "tool t__run", `{"options":{}}`, "allow all rules[6]"},
		{"local", "tool t__run", `{"options":null}`, "allow all rules[6]"},
		{"local", "tool t__run", `{"cwd":"/etc/x"}`, "allow all rules[6]"},
		{"local", "tool t__run", `{"options":"{\"cwd\":\"/etc\"}"}`, "deny all rules[0]"}, // some servers read that
		{"local", "tool t__run", `{"options":[{"cwd":"/etc"}]}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"options":{"cwd":["/etc"]}}`, "deny all rules[0]"},
		{"local", "tool t__run", `{"options":{"cwd":"/srv","cwd":"/etc"}}`, "ambiguous"},
		{"local", "tool t__run", `{"options":{"Cwd":"/etc"}}`, "ambiguous"},
		{"local", "tool t__run", `{"options":{"cwd":"/srv"},"Options":{"cwd":"/etc"}}`, "ambiguous"},
		{"local", "tool t__move", `{"files":[{"path":"a"},{"path":".env"}]}`, "deny all rules[1]"},
		{"local", "tool t__move", `{"files":[{"path":"a"},{"path":"b"}]}`, "allow all rules[6]"},
		{"local", "tool t__move", `{"files":[{"path":"a"},{"other":".env"}]}`, "allow all rules[6]"},
		{"local", "tool t__move", `{"files":[{"path":"a"},".env"]}`, "deny all rules[1]"},
		{"local", "tool t__move", `{"files":[]}`, "allow all rules[6]"},
		{"local", "tool t__move", `{"files":{"0":{"path":".env"}}}`, "deny all rules[1]"},
		{"local", "tool t__move", `{"files":[{"path":"a"},{"path":"b","path":".env"}]}`, "ambiguous"},
		{"local", "tool t__odd", `{"a/b":{"c~d":["x"]}}`, "deny all rules[2]"},
		{"local", "tool t__odd", `{"a/b":{"c~d":["y","x"]}}`, "allow all rules[6]"},
		{"local", "tool t__odd", `{"a/b":{"c~d":{"0":"x"}}}`, "deny all rules[2]"},
		{"local", "tool t__odd", `{"a/b":{"c~d":[]}}`, "allow all rules[6]"},
		{"local", "tool t__index", `{"list":["a","b"]}`, "deny all rules[7]"}, // 01 is no index
		{"local", "tool t__index", `{"list":{"01":"a","-":"y"}}`, "deny all rules[8]"},
		{"local", "tool t__index", `{"list":{"1":"x"}}`, "allow all rules[6]"},
		{"local", "tool t__read", `{"paths":["/srv/a","/srv/b"]}`, "allow all rules[3]"},
		{"local", "tool t__read", `{"paths":["/srv/a","/etc/b"]}`, "deny"},
		{"local", "tool t__read", `{"paths":["/srv/a",null]}`, "deny"},
		{"local", "tool t__read", `{"paths":["/srv/a",["/srv/b"]]}`, "deny"},
		{"local", "tool t__read", `{"paths":[]}`, "deny"}, // there must be one
		{"local", "tool t__read", `{"paths":"/srv/a"}`, "deny"},
		{"local", "tool t__read", `{"paths":{"a":"/srv/a"}}`, "deny"},
		{"local", "tool t__first", `{"paths":["/srv/a","/etc"]}`, "allow all rules[4]"},
		{"local", "tool t__first", `{"paths":["/etc","/srv/a"]}`, "deny"},
		{"local", "tool t__first", `{"paths":{"0":"/srv/a"}}`, "allow all rules[4]"},
		{"local", "tool t__deep", `{"a":[{"b":["x"]},{"b":["x","x"]}]}`, "allow all rules[5]"},
		{"local", "tool t__deep", `{"a":[{"b":["x"]},{"b":[]}]}`, "deny"},
		{"local", "tool t__deep", `{"a":[{"b":["x"]},{}]}`, "deny"},
	}},
	{"where: a rule that is not reached reads nothing", `
- name: all
  rules:
    - deny: { tools: [t__never, t__other], where: { a: x } }
    - deny: { tools: t__never }
    - allow: { tools: [t__never, t__other] }
    - ask: { tools: t__other, where: { b: x } }
- name: mine
  match: { key: me }
  rules: [{ allow: { tools: t__other } }]
`, []row{
		{"local", "tool t__never", `{"a":"y","a":"z"}`, "deny all rules[1]"},
		{"local", "tool t__other", `{"b":"y","b":"x"}`, "allow all rules[2]"},
		{"local", "tool t__other", `{"a":"y","a":"x"}`, "ambiguous"},
		{"key=me", "tool t__other", `{"a":"y","a":"x"}`, "allow mine rules[0]"},
	}},
	{"prompts have arguments, resources have none", `
- name: all
  rules:
    - allow: { upstreams: t, where: { lang: "e*" } }
    - deny: { upstreams: t, where: { lang: "*x" } }
`, []row{
		{"local", "prompt t__p", `{"lang":"en"}`, "allow all rules[0]"},
		{"local", "prompt t__p", `{"lang":"ex"}`, "deny all rules[1]"},
		{"local", "resource t:r @t", "", "deny"},
		{"local", "resource t:r @t", `{"lang":"en"}`, "deny"},
	}},
	{"resources: an allow takes no URI that may mean another place", `
- name: all
  rules: [{ allow: { resources: ["file:///srv/*", "note:*", "https://docs.example.com/*", "mcp://files/file:///srv/*"] } }]
`, []row{
		{"local", "resource file:///srv/a/b.txt @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/a%20b @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/100%25 @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/... @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/.env @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/%C3%A9 @files", "", "allow all rules[0]"},
		{"local", "resource FILE:///srv/a @files", "", "deny"},
		{"local", "resource file:///srv/../etc/passwd @files", "", "deny"},
		{"local", "resource file:///srv/.. @files", "", "deny"},
		{"local", "resource file:///srv/./a @files", "", "deny"},
		{"local", "resource file:///srv/%2e%2e/etc @files", "", "deny"},
		{"local", "resource file:///srv/%2E./etc @files", "", "deny"},
		{"local", "resource file:///srv/a%2fb @files", "", "deny"},
		{"local", "resource file:///srv/a%5Cb @files", "", "deny"},
		{"local", `resource file:///srv/..\etc @files`, "", "deny"},
		{"local", "resource file:///srv/%252e%252e/etc @files", "", "deny"},
		{"local", "resource file:///srv/%25252525252e%2525252e/etc @files", "", "deny"},
		{"local", "resource file:///srv/..;x/etc @files", "", "deny"},
		{"local", "resource file:///srv/.\t./etc @files", "", "deny"},
		{"local", "resource file:///srv/a%00.txt @files", "", "deny"},
		{"local", "resource file:///srv/a%2etxt @files", "", "deny"},
		{"local", "resource file:///srv/..%20 @files", "", "deny"},
		{"local", "resource file:///srv/a?p=../b @files", "", "deny"},
		{"local", "resource note:1 @notes", "", "allow all rules[0]"},
		{"local", "resource note:../2 @notes", "", "deny"},
		{"local", "resource https://docs.example.com/a?b=c#d @docs", "", "allow all rules[0]"},
		{"local", "resource https://docs.example.com/a/../../b @docs", "", "deny"},
		{"local", "resource file:///other|mcp://files/file:///srv/x @files", "", "allow all rules[0]"},
		{"local", "resource file:///srv/x|mcp://files/file:///srv/../x @files", "", "deny"},
		{"local", "resource file:///srv/{+path} @files", "", "allow all rules[0]"},
	}},
	{"resources: who may read everything may read what is written in an odd way", `
- { name: all, match: { key: all }, rules: [{ allow: { resources: "*" } }] }
- { name: stars, match: { key: stars }, rules: [{ allow: { resources: "**" } }] }
- { name: files, match: { key: files }, rules: [{ allow: { upstreams: files } }] }
- { name: almost, match: { key: almost }, rules: [{ allow: { resources: "?*" } }] }
`, []row{
		{"key=all", "resource file:///a/../b @files", "", "allow all rules[0]"},
		{"key=stars", "resource file:///a/../b @files", "", "allow stars rules[0]"},
		{"key=files", "resource file:///a/../b @files", "", "allow files rules[0]"},
		{"key=almost", "resource file:///a/b @files", "", "allow almost rules[0]"},
		{"key=almost", "resource file:///a/../b @files", "", "deny"},
	}},
	{"resources: a deny sees through the ways of writing", `
- name: all
  rules:
    - deny: { resources: ["*.env", "file:///etc/*", "file:///my%20dir/*", "HTTPS://Example.com/secret/*", "mcp://files/file:///root/*", "file:///star%2a",
                          "*secret=1", "https://web/a//b", "https://app/#admin*", "https://port:443/*"] }
    - ask: { resources: "file:///ask/*" }
    - allow: { resources: "*" }
`, []row{
		{"local", "resource file:///srv/x @files", "", "allow all rules[2]"},
		{"local", "resource file:///srv/.env @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.%65nv @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/%2e%65%6e%76 @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/%252eenv @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.env?x=1 @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.env#top @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.env/ @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.env/. @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.env%00.txt @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/.ENV @files", "", "allow all rules[2]"}, // case counts
		{"local", "resource file:///etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///srv/../etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///%65tc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:////etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///../../etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///star* @files", "", "deny all rules[0]"},
		{"local", "resource file:///starfish @files", "", "allow all rules[2]"},
		{"local", "resource https://web/?secret=1#top @web", "", "deny all rules[0]"},
		{"local", "resource HTTPS://App/#admin/users @web", "", "deny all rules[0]"},
		{"local", "resource https://web/x/../a//b @web", "", "deny all rules[0]"},
		{"local", "resource file:///./etc//passwd @files", "", "deny all rules[0]"},
		{"local", `resource file:\\\etc\passwd @files`, "", "deny all rules[0]"},
		{"local", "resource file:/etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file://localhost/etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource FILE:///etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///e\ttc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///x/..;/etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:///my%20dir/a @files", "", "deny all rules[0]"},
		{"local", "resource file:///my dir/a @files", "", "deny all rules[0]"},
		{"local", "resource file:///%6dy%20dir/a @files", "", "deny all rules[0]"},
		{"local", "resource https://example.com/secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https://EXAMPLE.com/a/../secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https://example.com:443/secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https://example.com:8443/secret/1 @web", "", "allow all rules[2]"}, // another server
		{"local", "resource https://me:pw@example.com/secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https://example.com@elsewhere.org/secret/1 @web", "", "allow all rules[2]"},
		{"local", "resource https://example.com./secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https:/example.com/secret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https:example.com/secret/1 @web", "", "deny all rules[0]"},
		{"local", `resource https:\\Example.com:443/a/../secret/1 @web`, "", "deny all rules[0]"},
		{"local", "resource https:////example.com/%73ecret/1 @web", "", "deny all rules[0]"},
		{"local", "resource https://port/a @web", "", "deny all rules[0]"},
		{"local", "resource https://port:443/%61 @web", "", "deny all rules[0]"},
		{"local", "resource file://elsewhere/etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource file:etc/passwd @files", "", "deny all rules[0]"},
		{"local", "resource x:|mcp://files/file:///root/a @files", "", "deny all rules[0]"},
		{"local", "resource x:|mcp://files/file:/root/a @files", "", "deny all rules[0]"},
		{"local", "resource x:|mcp://files/file:///srv/../root/a @files", "", "deny all rules[0]"},
		{"local", "resource file:///ask/a @files", "", "ask all rules[1]"},
		{"local", "resource file:///%61sk/a @files", "", "ask all rules[1]"},
		// A person cannot approve an ambiguous URI.
		{"local", "resource file:///x/../ask/a @files", "", "deny all rules[1]"},
		{"local", "resource file:///ask/../srv/a @files", "", "deny all rules[1]"},
	}},
}
