// Package folder decides which folders of this machine a client may name.
//
// name.go reads a name: the value of a header, or the URI of a root. guard.go decides whether the
// folder is permitted, and roots.go does so for the roots of a client. place.go is a folder that the
// Guard has opened, with its identity. never.go has the folders that nobody may name. list.go is the
// file with the folders that a person has permitted. The open_ files open a folder without following
// a link, and opening.go bounds how many folders a principal opens at the same time.
//
// A name is a statement of the client, and proves nothing. The Guard compares it as text first, so
// that nothing outside the permitted folders is touched, and its answer is the same whether a file
// exists there or not. Then it opens the folder, one part of the path after another, and compares the
// folder that it has opened. The next call compares again.
package folder
