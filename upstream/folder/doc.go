// Package folder decides which folders of this machine a client may name.
//
// name.go reads a name: the value of a header, or the URI of a root. guard.go decides whether the
// folder is permitted. place.go is a folder that the Guard has opened, with its identity. never.go has
// the folders that nobody may name. The open_ files open a folder below another one without following
// a link.
//
// A name is a statement of the client, and proves nothing. The Guard compares it as text first, so
// that nothing outside the permitted folders is touched, and its answer is the same whether a file
// exists there or not. Then it opens the folder, one part of the path after another, and compares the
// folder that it has opened. The next call compares again.
package folder
