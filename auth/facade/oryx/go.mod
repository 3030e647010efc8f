module github.com/ory/x

go 1.26
