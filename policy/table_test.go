package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// A story is a policies section with calls and their decisions.
type story struct {
	name     string
	policies string
	rows     []row
}

// A row is one call: the caller, the item, the arguments and the decision. mustSubject, mustItem
// and verdict define the notation.
type row struct{ who, what, arguments, want string }

// team is the section of several stories.
const team = `
- name: everybody
  rules:
    - allow: { upstreams: search }
    - ask: { tools: "shell__*" }
- name: web
  match: { surface: web }
  rules:
    - deny: { upstreams: shell }
    - allow: { tools: files__read }
- name: developers
  match: { group: engineering }
  rules:
    - allow: { tools: shell__run, where: { command: "git *" } }
    - deny: { tools: shell__run, where: { command: "*--force*" } }
- name: trainees
  match: { group: trainees, surface: [web, cli] }
  rules:
    - ask: { tools: shell__run, where: { command: "git *" } }
    - deny: { upstreams: files }
`

var stories = []story{
	{"layers: the first in which a rule applies decides", team, []row{
		{"local", "tool search__find", "", "allow everybody rules[0]"},
		{"local", "prompt search__how", "", "allow everybody rules[0]"},
		{"local", "resource mcp://search/a @search", "", "allow everybody rules[0]"},
		{"local", "tool shell__run", `{"command":"ls"}`, "ask everybody rules[1]"},
		{"local", "tool files__read", "", "deny"},
		{"local surface=cli", "tool files__read", "", "deny"},
		// The surface's policies come before the global ones,
		{"local surface=web", "tool files__read", "", "allow web rules[1]"},
		{"local surface=web", "tool shell__run", `{"command":"ls"}`, "deny web rules[0]"},
		{"local surface=web", "tool search__find", "", "allow everybody rules[0]"}, // on which the surface has no rule
		// and the caller's own before both, even where they are looser.
		{"group=engineering surface=web", "tool shell__run", `{"command":"git log"}`, "allow developers rules[0]"},
		{"group=engineering surface=web", "tool shell__run", `{"command":"ls"}`, "deny web rules[0]"},
		{"group=engineering", "tool shell__run", `{"command":"ls"}`, "ask everybody rules[1]"},
		{"group=engineering", "tool shell__run", `{}`, "ask everybody rules[1]"},
		{"group=engineering", "tool shell__run", `{"command":"git push --force"}`, "deny developers rules[1]"},
		// not the ask of everybody
		{"group=engineering", "tool shell__run", `{"command":"rm --force"}`, "deny developers rules[1]"},
		{"group=engineering", "tool shell__list", `{"command":"git --force"}`, "ask everybody rules[1]"},
		// A match with a group and a surface is the caller's own.
		{"group=trainees surface=web", "tool files__read", "", "deny trainees rules[1]"},
		{"group=trainees surface=cli", "tool files__read", "", "deny trainees rules[1]"},
		{"group=trainees surface=chat", "tool files__read", "", "deny"},
		{"group=trainees", "tool shell__run", `{"command":"git log"}`, "ask everybody rules[1]"},
		{"group=trainees surface=web", "tool shell__run", `{"command":"git log"}`, "ask trainees rules[0]"},
		{"group=trainees surface=web", "tool shell__run", `{"command":"ls"}`, "deny web rules[0]"},
		// Of two own policies, the stricter counts.
		{"group=trainees,engineering surface=cli", "tool shell__run", `{"command":"git log"}`, "ask trainees rules[0]"},
		{"group=engineering,trainees surface=cli", "tool shell__run", `{"command":"git log"}`, "ask trainees rules[0]"},
		{"group=engineering,trainees surface=cli", "tool shell__run", `{"command":"git push --force"}`,
			"deny developers rules[1]"},
	}},
	{"rules: the first that applies, and a deny wherever it stands", `
- name: one
  rules:
    - ask: { tools: a__x }
    - allow: { tools: "a__*" }
    - ask: { tools: a__y }
    - deny: { tools: a__z }
    - deny: { tools: a__zz }
    - allow: { tools: a__zz, where: { x: "1" } }
    - deny: { tools: a__w, where: { x: "1" } }
`, []row{
		{"local", "tool a__x", "", "ask one rules[0]"},
		{"local", "tool a__y", "", "allow one rules[1]"},
		{"local", "tool a__z", "", "deny one rules[3]"},
		{"local", "tool a__zz", `{"x":"1"}`, "deny one rules[4]"},
		{"local", "tool a__w", `{"x":"1"}`, "deny one rules[6]"},
		{"local", "tool a__w", `{"x":"2"}`, "allow one rules[1]"},
		{"local", "tool a__w", "", "allow one rules[1]"},
		{"local", "tool b__x", "", "deny"},
	}},
	{"ties: between policies of a layer the strictest, whatever their order", `
- name: a
  rules: [{ allow: { tools: [t__all, t__ask, t__deny, t__where] } }]
- name: b
  rules: [{ ask: { tools: [t__ask, t__deny] } }, { deny: { tools: t__where, where: { x: bad } } }]
- name: c
  rules: [{ allow: { tools: [t__ask] } }, { deny: { tools: t__deny } }, { ask: { tools: t__where, where: { x: "b*" } } }]
`, []row{
		{"local", "tool t__all", "", "allow a rules[0]"},
		{"local", "tool t__ask", "", "ask b rules[0]"},
		{"local", "tool t__deny", "", "deny c rules[1]"},
		{"local", "tool t__where", `{"x":"good"}`, "allow a rules[0]"},
		{"local", "tool t__where", `{"x":"better"}`, "ask c rules[2]"},
		{"local", "tool t__where", `{"x":"bad"}`, "deny b rules[1]"},
		{"local", "tool t__where", `{"x":"bad","x":"good"}`, "ambiguous"},
	}},
	{"match: who somebody is", `
- { name: kind, match: { kind: [key, service] }, rules: [{ allow: { tools: t__kind } }] }
- { name: key, match: { key: ci }, rules: [{ allow: { tools: t__key } }] }
- { name: user, match: { user: ann, issuer: "https://id.example.com" }, rules: [{ allow: { tools: t__user } }] }
- { name: email, match: { email: Ann@example.com }, rules: [{ allow: { tools: t__email } }] }
- { name: domain, match: { email_domain: [example.com, kiosk.org] }, rules: [{ allow: { tools: t__domain } }] }
- { name: group, match: { group: [eng, ops] }, rules: [{ allow: { tools: t__group } }] }
- { name: scope, match: { scope: "tools:*" }, rules: [{ allow: { tools: t__scope } }] }
- { name: client, match: { oauth_client: app }, rules: [{ allow: { tools: t__client } }] }
- { name: net, match: { cidr: [10.0.0.0/8, "fd00::/8", "fe80::/10"] }, rules: [{ allow: { tools: t__net } }] }
- { name: surface, match: { surface: cli }, rules: [{ allow: { tools: t__surface } }] }
`, []row{
		{"kind=key", "tool t__kind", "", "allow kind rules[0]"},
		{"kind=service", "tool t__kind", "", "allow kind rules[0]"},
		{"kind=user", "tool t__kind", "", "deny"},
		{"", "tool t__kind", "", "deny"},
		{"key=ci", "tool t__key", "", "allow key rules[0]"},
		{"key=CI", "tool t__key", "", "deny"},
		{"key=ci2", "tool t__key", "", "deny"},
		{"user=ci", "tool t__key", "", "deny"},
		{"id=ci", "tool t__key", "", "deny"},
		{"", "tool t__key", "", "deny"},
		{"user=ann issuer=https://id.example.com", "tool t__user", "", "allow user rules[0]"},
		{"user=ann issuer=https://evil.example.com", "tool t__user", "", "deny"},
		{"user=ann", "tool t__user", "", "deny"},
		{"issuer=https://id.example.com", "tool t__user", "", "deny"},
		{"email=ann@example.com", "tool t__email", "", "allow email rules[0]"},
		{"email=ANN@EXAMPLE.COM", "tool t__email", "", "allow email rules[0]"},
		{"email=ann@example.com.evil", "tool t__email", "", "deny"},
		{"email=bob@Example.com", "tool t__domain", "", "allow domain rules[0]"},
		{"email=bob@KIOSK.org", "tool t__domain", "", "allow domain rules[0]"},
		{"email=bob@\u212aiosk.org", "tool t__domain", "", "deny"}, // the sign of Kelvin
		{"email=bob@sub.example.com", "tool t__domain", "", "deny"},
		{"email=bob@notexample.com", "tool t__domain", "", "deny"},
		{"email=example.com@evil.org", "tool t__domain", "", "deny"},
		{"email=example.com", "tool t__domain", "", "deny"},
		{"email=@example.com", "tool t__domain", "", "deny"},
		{"email=bob@example.com@evil.org", "tool t__domain", "", "deny"},
		{"email=bob@eXample.com", "tool t__domain", "", "allow domain rules[0]"},
		{"group=ops", "tool t__group", "", "allow group rules[0]"},
		{"group=sales,eng", "tool t__group", "", "allow group rules[0]"},
		{"group=engineering", "tool t__group", "", "deny"},
		{"group=", "tool t__group", "", "deny"},
		{"scope=tools:*", "tool t__scope", "", "allow scope rules[0]"},
		{"scope=tools:read", "tool t__scope", "", "deny"},
		{"client=app", "tool t__client", "", "allow client rules[0]"},
		{"client=App", "tool t__client", "", "deny"},
		{"address=10.200.3.4", "tool t__net", "", "allow net rules[0]"},
		{"address=::ffff:10.200.3.4", "tool t__net", "", "allow net rules[0]"},
		{"address=11.0.0.1", "tool t__net", "", "deny"},
		{"address=fd12::1", "tool t__net", "", "allow net rules[0]"},
		{"address=fe80::1%eth0", "tool t__net", "", "allow net rules[0]"},
		{"address=2001:db8::1", "tool t__net", "", "deny"},
		{"", "tool t__net", "", "deny"},
		{"surface=cli", "tool t__surface", "", "allow surface rules[0]"},
		{"surface=CLI", "tool t__surface", "", "deny"},
	}},
	{"match: every key given must hold", `
- name: nightly
  match: { key: [ci, cron], cidr: 10.0.0.0/8, surface: cli }
  rules: [{ allow: { upstreams: "*" } }]
`, []row{
		{"key=ci address=10.0.0.1 surface=cli", "tool a__b", "", "allow nightly rules[0]"},
		{"key=cron address=10.0.0.1 surface=cli", "tool a__b", "", "allow nightly rules[0]"},
		{"key=ci address=192.168.0.1 surface=cli", "tool a__b", "", "deny"},
		{"key=ci surface=cli", "tool a__b", "", "deny"},
		{"key=ci address=10.0.0.1 surface=web", "tool a__b", "", "deny"},
		{"key=ci address=10.0.0.1", "tool a__b", "", "deny"},
		{"key=me address=10.0.0.1 surface=cli", "tool a__b", "", "deny"},
	}},
	{"capabilities: all that are required, from whichever policies", `
- { name: all, capabilities: [web], rules: [{ allow: { upstreams: "*" } }] }
- { name: ci, match: { key: ci }, capabilities: [files, deploy:prod] }
- { name: cli, match: { surface: cli }, capabilities: [shell] }
`, []row{
		{"local", "tool a__b", "", "allow all rules[0]"},
		{"local", "tool a__b needs=web", "", "allow all rules[0]"},
		{"local", "tool a__b needs=web,files", "", "deny missing files"},
		{"local", "tool a__b needs=files,web", "", "deny missing files"},
		{"local", "tool a__b needs=deploy:prod,shell", "", "deny missing deploy:prod"},
		{"key=ci", "tool a__b needs=web,files", "", "allow all rules[0]"},
		{"key=ci", "tool a__b needs=shell,files", "", "deny missing shell"},
		{"key=ci surface=cli", "tool a__b needs=shell,files,web,deploy:prod", "", "allow all rules[0]"},
		{"key=ci", "tool a__b needs=deploy", "", "deny missing deploy"}, // nothing is implied
		{"key=ci", "tool a__b needs=deploy:prod:eu", "", "deny missing deploy:prod:eu"},
		{"key=ci", "tool a__b needs=Files", "", "deny missing Files"},
		{"key=ci", "tool a__b needs=*", "", "deny missing *"},
		{"key=ci", "resource x:y @a needs=none", "", "deny missing none"},
		{"key=ci", "prompt a__b needs=none", `{"x":"1","x":"2"}`, "deny missing none"},
	}},
	{"capabilities are no permission", `
- { name: all, capabilities: [web] }
`, []row{
		{"local", "tool a__b", "", "deny"},
		{"local", "tool a__b needs=web", "", "deny"},
	}},
	{"selectors: upstreams, and the kinds that are named", `
- name: all
  rules:
    - allow: { upstreams: [files, "s*"], tools: ["*read*", "*__list"] }
    - allow: { upstreams: docs, prompts: "*" }
    - ask: { resources: "note:*", prompts: "docs__*" }
    - deny: { upstreams: "s?c*", tools: "*" }
`, []row{
		{"local", "tool files__read", "", "allow all rules[0]"},
		{"local", "tool files__list", "", "allow all rules[0]"},
		{"local", "tool files__write", "", "deny"},
		{"local", "tool docs__read", "", "deny"},
		{"local", "tool search__read", "", "allow all rules[0]"},
		{"local", "tool secrets__read", "", "deny all rules[3]"},
		{"local", "tool sac__other", "", "deny all rules[3]"},
		{"local", "tool sc__read", "", "allow all rules[0]"}, // ? is one character, not none
		{"local", "prompt files__read", "", "deny"},
		{"local", "prompt docs__write", "", "allow all rules[1]"},
		{"local", "prompt docs__write @other", "", "ask all rules[2]"},
		{"local", "resource note:1 @files", "", "ask all rules[2]"},
		{"local", "resource other:1 @files", "", "deny"},
		{"local", "resource other:1 @docs", "", "deny"}, // that rule is for prompts
		{"local", "tool note:1 @other", "", "deny"},
	}},
	{"names: any that the item has", `
- name: all
  rules:
    - allow: { tools: [gh__short_1a2b, "gh__a_very_long_name_*"] }
    - deny: { tools: gh__a_very_long_name_that_deletes }
`, []row{
		{"local", "tool gh__short_1a2b|gh__something", "", "allow all rules[0]"},
		{"local", "tool gh__short_ffff|gh__a_very_long_name_that_reads", "", "allow all rules[0]"},
		{"local", "tool gh__short_ffff|gh__a_very_long_name_that_deletes", "", "deny all rules[1]"},
		{"local", "tool gh__short_1a2b|gh__a_very_long_name_that_deletes", "", "deny all rules[1]"},
		{"local", "tool gh__short", "", "deny"},
	}},
	{"globs: the whole text, to the letter", `
- name: all
  rules:
    - allow: { tools: ["abc", "pre*", "*suf", "x*y*z", "q?", '\*star', 'back\\slash', "m??*n", "**dd**", "é?", "a*a", "*k?z"] }
`, []row{
		{"local", "tool abc @u", "", "allow all rules[0]"},
		{"local", "tool abcd @u", "", "deny"},
		{"local", "tool xabc @u", "", "deny"},
		{"local", "tool ABC @u", "", "deny"},
		{"local", "tool pre @u", "", "allow all rules[0]"},
		{"local", "tool prefix @u", "", "allow all rules[0]"},
		{"local", "tool Prefix @u", "", "deny"},
		{"local", "tool suf @u", "", "allow all rules[0]"},
		{"local", "tool suffix @u", "", "deny"},
		{"local", "tool xyz @u", "", "allow all rules[0]"},
		{"local", "tool x-y-z @u", "", "allow all rules[0]"},
		{"local", "tool xzy @u", "", "deny"},
		{"local", "tool xyyzz @u", "", "allow all rules[0]"},
		{"local", "tool q1 @u", "", "allow all rules[0]"},
		{"local", "tool qé @u", "", "allow all rules[0]"},
		{"local", "tool q @u", "", "deny"},
		{"local", "tool q12 @u", "", "deny"},
		{"local", "tool *star @u", "", "allow all rules[0]"},
		{"local", "tool xstar @u", "", "deny"},
		{"local", `tool back\slash @u`, "", "allow all rules[0]"},
		{"local", `tool back\\slash @u`, "", "deny"},
		{"local", "tool m12n @u", "", "allow all rules[0]"},
		{"local", "tool m12345n @u", "", "allow all rules[0]"},
		{"local", "tool m1n @u", "", "deny"},
		{"local", "tool m1nn @u", "", "allow all rules[0]"},
		{"local", "tool oddity @u", "", "allow all rules[0]"},
		{"local", "tool odity @u", "", "deny"},
		{"local", "tool éa @u", "", "allow all rules[0]"},
		{"local", "tool e\u0301a @u", "", "deny"}, // another spelling of é
		{"local", "tool aa @u", "", "allow all rules[0]"},
		{"local", "tool akéz @u", "", "allow all rules[0]"},
		{"local", "tool akz @u", "", "deny"},
		{"local", "tool a @u", "", "deny"},   // one a is not two
		{"local", "tool аbc @u", "", "deny"}, // a Cyrillic a
		{"local", "tool abc\u200b @u", "", "deny"},
		{"local", "tool abc\x00 @u", "", "deny"},
		{"local", "tool abc\xff @u", "", "deny"},
		{"local", "tool q\xff @u", "", "allow all rules[0]"},
		{"local", "tool q\ufffd @u", "", "allow all rules[0]"},
	}},
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

func TestDecisions(t *testing.T) {
	rows := 0
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			p := mustCompile(t, s.policies)
			for _, r := range s.rows {
				subject, item, arguments := mustSubject(t, r.who), mustItem(t, r.what), mustParse(t, r.arguments)
				d, err := p.Decide(subject, item, arguments)
				got := verdict(d, err)
				if got != r.want {
					t.Errorf("%s, %s %s: %s, want %s", r.who, r.what, r.arguments, got, r.want)
				}
				if visible := p.For(subject).Bind(item).Visible(); !visible &&
					(d.Verdict != policy.Deny || err != nil) {
					t.Errorf("%s, %s %s: %s, and it is not visible", r.who, r.what, r.arguments, got)
				}
			}
		})
		rows += len(s.rows)
	}
	if rows < 150 {
		t.Errorf("%d rows, want at least 150", rows)
	}
}

// TestNoPolicies: no section, an empty one, and a nil Policy.
func TestNoPolicies(t *testing.T) {
	empty, err := policy.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		policy *policy.Policy
		what   string
		want   string
	}{
		{"no section", policy.Open(), "tool a__b", "allow"},
		{"no section", policy.Open(), "prompt a__b", "allow"},
		{"no section", policy.Open(), "resource file:///a/../b @a", "allow"},
		{"no section", policy.Open(), "tool a__b needs=web", "deny missing web"},
		{"an empty section", empty, "tool a__b", "deny"},
		{"no Policy", nil, "tool a__b", "deny"},
		{"the zero Policy", &policy.Policy{}, "tool a__b", "deny"},
	} {
		d, err := test.policy.Decide(policy.Subject{}, mustItem(t, test.what), raw.Object{})
		if got := verdict(d, err); got != test.want {
			t.Errorf("%s: %s: %s, want %s", test.name, test.what, got, test.want)
		}
	}
}

// TestNameless: an item without names. An allow of names does not match it; a deny does.
func TestNameless(t *testing.T) {
	p := mustCompile(t, `
- { name: allow, match: { key: a }, rules: [{ allow: { tools: "*", resources: "x*" } }] }
- { name: deny, match: { key: b }, rules: [{ deny: { tools: x, resources: x } }, { allow: { upstreams: "*" } }] }
`)
	for _, who := range []string{"key=a", "key=b"} {
		for _, kind := range []policy.Kind{policy.Tool, policy.Resource} {
			if d, err := p.Decide(mustSubject(t, who), policy.Item{Kind: kind, Upstream: "u"},
				raw.Object{}); err != nil || d.Verdict != policy.Deny {
				t.Errorf("%s, a %v without a name: %v, %v", who, kind, d, err)
			}
		}
	}
}

// verdict formats a decision: the verdict, then the policy and its rule, or what is missing. An
// error is "ambiguous".
func verdict(d policy.Decision, err error) string {
	if errors.Is(err, raw.ErrAmbiguous) && d == (policy.Decision{}) {
		return "ambiguous"
	}
	if err != nil {
		return err.Error()
	}
	words := []string{d.Verdict.String()}
	if d.Missing != "" {
		words = append(words, "missing", d.Missing)
	}
	for _, s := range []string{d.Policy, d.Rule} {
		if s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}

// mustSubject parses key=value pairs; lists have commas. The word local is a kind.
func mustSubject(tb testing.TB, text string) policy.Subject {
	tb.Helper()
	var s policy.Subject
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "local":
			s.Kind, s.ID = "local", "local"
		case "kind":
			s.Kind = value
		case "id":
			s.ID = value
		case "key":
			s.Key = value
		case "user":
			s.User = value
		case "issuer":
			s.Issuer = value
		case "email":
			s.Email = value
		case "group":
			s.Groups = strings.Split(value, ",")
		case "scope":
			s.Scopes = strings.Split(value, ",")
		case "client":
			s.OAuthClient = value
		case "surface":
			s.Surface = value
		case "address":
			s.Address = netip.MustParseAddr(value)
		default:
			tb.Fatalf("what is %s?", word)
		}
	}
	return s
}

// mustItem parses a kind, names separated by |, the upstream after @ (by default the part before
// __), and capabilities after needs=.
func mustItem(tb testing.TB, text string) policy.Item {
	tb.Helper()
	var it policy.Item
	kind, text, ok := strings.Cut(text, " ")
	text, needs, _ := strings.Cut(text, " needs=")
	if needs != "" {
		it.Requires = strings.Split(needs, ",")
	}
	kinds := map[string]policy.Kind{"tool": policy.Tool, "prompt": policy.Prompt, "resource": policy.Resource}
	if it.Kind = kinds[kind]; !ok || it.Kind.String() != kind {
		tb.Fatalf("what is %s?", kind)
	}
	text, it.Upstream, ok = strings.Cut(text, " @")
	it.Names = strings.Split(text, "|")
	if !ok {
		if it.Upstream, _, ok = strings.Cut(text, "__"); !ok {
			tb.Fatalf("%s is of no upstream", text)
		}
	}
	return it
}
