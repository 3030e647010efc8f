package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// Era is an era of the protocol.
type Era string

const (
	EraAuto   Era = ""       // not known yet: it is detected
	EraLegacy Era = "legacy" // 2025-11-25 and older: a handshake, then a session
	EraModern Era = "modern" // 2026-07-28: stateless
	// EraBoth is a word of the file only: the era is detected, and a modern server gets a legacy
	// connection, too. To a Dialer it is EraAuto.
	EraBoth Era = "both"
)

// draft20241007 is the draft of 2024-11-05. The TypeScript SDK still accepts it.
const draft20241007 = "2024-10-07"

var legacyVersions = mcp.LegacyProtocolVersions() // which makes a list at each call

// IsLegacyVersion reports whether a version of the protocol is one of the legacy era that Junction
// supports.
func IsLegacyVersion(version string) bool {
	return version == draft20241007 || slices.Contains(legacyVersions, version)
}

// An eraRow has the facts of a word of era in the file.
type eraRow struct {
	era  Era
	word string
	// detects means that the server decides about the era. both means that a modern server gets a legacy
	// connection, too. modern means that the word makes no sense for a server without the modern era.
	detects, both, modern bool
}

// eras has a row for each word, in the order in which texts name them.
var eras = []eraRow{
	{era: EraAuto, word: "auto", detects: true},
	{era: EraBoth, word: "both", detects: true, both: true, modern: true},
	{era: EraLegacy, word: "legacy"},
	{era: EraModern, word: "modern", modern: true},
}

func (e Era) row() eraRow {
	return eras[max(0, slices.IndexFunc(eras, func(r eraRow) bool { return r.era == e }))]
}

// Detects reports whether the server decides about the era.
func (e Era) Detects() bool { return e.row().detects }

// Both reports whether a modern server gets a legacy connection, too, also if it is a command.
func (e Era) Both() bool { return e.row().both }

// NeedsModern reports whether the word makes no sense for a server without the modern era.
func (e Era) NeedsModern() bool { return e.row().modern }

// EraWords returns the words of the file.
func EraWords() (words []string) {
	for _, row := range eras {
		words = append(words, row.word)
	}
	return words
}

// Words returns the words of the file.
func (Era) Words() []string { return EraWords() }

// UnmarshalText parses a word of the file.
func (e *Era) UnmarshalText(text []byte) error {
	i := slices.Index(EraWords(), string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", text, strings.Join(EraWords(), ", "))
	}
	*e = eras[i].era
	return nil
}
