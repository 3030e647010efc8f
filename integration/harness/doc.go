// Package harness has the code that the packages of tests beside it share. It builds the program,
// starts the program and the clients and servers around it, and ends all of them.
//
//   - Program is the real program, a process with a configuration file.
//   - Junction is the proxy in the test's own process, for one pair of eras; Stand is such a proxy
//     that gives access to its memory and its states, and Endpoint one that gives access only to
//     its URL.
//   - Served is an upstream that a test serves, in one era over one transport.
//   - Talker, Client and Caller are clients that write and read JSON themselves.
//
// It has three rooms. Package process, which knows nothing of Junction, starts and ends processes of
// any program. Package settings writes what a test has configured as a file for the program. Package
// npm has the clients and servers that others wrote (../npm); it uses harness, which does not use it.
//
// A package of tests calls Main in its TestMain. Everything that the harness starts ends with the
// test that started it. A test fails if a process or a goroutine of Junction outlives the test.
package harness
