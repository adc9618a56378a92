// Package arch holds the rules of the house as tests: the floors and who may import what, who may dial, start
// programs and read the environment, what every package and file must have, and the tables of docs/handlers that are
// held against the code. It builds nothing: it lists the packages, parses their files and reads the tree, so it runs
// in a few seconds and says of a rule broken where, why the rule stands, and what to do.
//
// A checker is a function from parsed packages to findings; each has a test over small sources that it must and must
// not object to, so that a rule that no longer bites is noticed.
package arch
