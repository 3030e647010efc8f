// Package harness is what the packages of tests beside it share: it builds the program, starts it
// and the clients and servers around it, and ends them.
//
//   - Program is the real program, a process with a configuration file.
//   - Junction is the proxy in the test's own process, for one pair of eras; Stand and Endpoint are
//     the proxy with other things in view: its memory and its states, or nothing but its URL.
//   - Served is an upstream that a test serves, in one era over one transport.
//   - Talker, Client and Caller are clients that write and read JSON themselves.
//   - NpmClient, NodeScript and MustServe are clients and servers that others wrote (../npm).
//
// A package of tests calls Main in its TestMain. Whatever the harness starts ends with the test
// that started it, and a test fails if a process or a goroutine of Junction outlives it.
package harness
