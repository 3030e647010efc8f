package policy_test

// ruleStories are about layers, matches, capabilities, selectors and globs.
var ruleStories = []story{
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
}
