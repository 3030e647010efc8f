// Package fetch gets packs from git repositories over HTTPS, and runs nothing of them. The program
// git downloads the objects of one commit into an empty repository. This package writes the files
// from these objects itself. There is no checkout, so git applies no hook, filter, submodule or
// attribute of the repository.
package fetch

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"junction/upstream/prose"
)

// Source names a commit of a repository, as a user writes it.
type Source struct {
	URL string // https
	Ref string // a branch, a tag, or a full commit; "" is the default branch
}

// github is the host of OWNER/REPO.
const github = "https://github.com/"

var (
	shortName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.][A-Za-z0-9_.-]*$`)
	// refName permits fewer names than git. git cannot take any of them for an option or a refspec.
	refName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+-]*$`)
	commit  = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// Parse reads OWNER/REPO@REF, or https://HOST/PATH@REF. The ref may be left out.
func Parse(text string) (Source, error) {
	var s Source
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		repo, ref, _ := strings.Cut(path, "@")
		s = Source{scheme + "://" + host + "/" + repo, ref}
	} else {
		repo, ref, _ := strings.Cut(text, "@")
		if !shortName.MatchString(repo) || strings.HasSuffix(repo, "..") {
			return s, fmt.Errorf("%s is no repository; write OWNER/REPO@REF for GitHub, or https://HOST/PATH@REF; "+
				"for a folder on this machine: junction add NAME FOLDER", prose.Quote(text))
		}
		s = Source{github + repo, ref}
	}
	if strings.HasSuffix(text, "@") {
		return s, fmt.Errorf("%s names no branch, tag or commit after @", prose.Quote(text))
	}
	return s, s.Check()
}

// Check returns an error if the source must not be given to git.
func (s Source) Check() error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || strings.ContainsFunc(s.URL, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%s is no URL; write https://HOST/PATH@REF", prose.Quote(s.URL))
	case u.Scheme != "https":
		return fmt.Errorf("%s has the scheme %s; packs are fetched over https only",
			prose.Quote(s.URL), prose.Quote(u.Scheme))
	case u.User != nil:
		return errors.New("the URL has a user or a password, which would be written into packs.lock; " +
			"leave it out, and store it with git credential")
	case u.Host == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s is no repository; write https://HOST/PATH@REF", prose.Quote(s.URL))
	case s.Ref == "":
	case len(s.Ref) > 200, !refName.MatchString(s.Ref), strings.Contains(s.Ref, ".."),
		strings.HasSuffix(s.Ref, ".lock"):
		return fmt.Errorf("%s is no branch, tag or commit that can be fetched; "+
			"use letters, digits, _, ., /, + and -, and begin with a letter or digit", prose.Quote(s.Ref))
	}
	return nil
}

// String returns the source as Parse reads it.
func (s Source) String() string {
	text := s.URL
	if short := strings.TrimPrefix(s.URL, github); shortName.MatchString(short) {
		text = short
	}
	if s.Ref != "" {
		text += "@" + s.Ref
	}
	return text
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// Name returns a name for the pack: the last part of the URL.
func (s Source) Name() string {
	base := strings.TrimSuffix(path.Base(s.URL), ".git")
	base = strings.Trim(notInName.ReplaceAllString(base, "-"), "-")
	return base[:min(len(base), 32)]
}

// IsCommit reports whether the ref is a full commit, which cannot change.
func (s Source) IsCommit() bool { return commit.MatchString(s.Ref) }
