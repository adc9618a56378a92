// Package sandboxtest is the conformance suite of contract A: every sandbox.Driver passes Run, so that one can stand
// in for another. Each subtest holds one sentence of the contract.
//
// What runs inside is the program of sandboxtest/probe, in an image of nothing but that program and empty folders;
// no toolbox is needed. Inside, it writes what it found as JSON into a scope, where the test reads it.
package sandboxtest
