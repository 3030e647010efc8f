package search

import "slices"

// synonyms returns the terms that stand for the same action or thing as a term of a query. They
// count less than the term itself.
func synonyms(term string) []string {
	for _, group := range groups {
		if slices.Contains(group, term) {
			return group
		}
	}
	return nil
}

// groups are groups of synonyms, as Words returns them. Most are verbs: users and models choose
// another verb than the author of a tool more often than another noun.
var groups = [...][]string{
	{"creat", "add", "new", "make", "insert", "open", "regist"},
	{"delet", "remov", "drop", "destroy", "revok", "eras", "clear", "kick", "forget"},
	{"updat", "chang", "edit", "modify", "set", "patch", "renam", "adjust", "replac"},
	{"list", "show", "all", "enumerat"},
	{"get", "read", "retriev", "fetch", "detail", "describ", "look", "view"},
	{"search", "find", "query", "lookup"},
	{"send", "post", "publish", "submit", "writ"},
	{"start", "run", "trigger", "execut", "launch", "dispatch"},
	{"stop", "cancel", "abort", "end"},
	{"copy", "clon", "duplicat"},
	{"unlink", "detach", "disconnect"},
	{"download", "export"},
	{"upload", "import"},
	{"mut", "silenc", "snooz", "downtim"},
	{"pr", "pull"},
	{"ci", "pipelin", "build"},
	{"repo", "repository", "project"},
	{"directory", "folder"},
	{"picture", "imag", "screenshot", "photo", "pictur"},
	{"comment", "remark", "repli", "reply", "answer"},
	{"bug", "issu", "ticket"},
	{"url", "link"},
	{"doc", "document", "documentation"},
	{"config", "configuration", "setting"},
}
