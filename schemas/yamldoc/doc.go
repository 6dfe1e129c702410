// Package yamldoc reads the YAML files that people write for the programs of
// this module: the settings and tests of policy stores, and the configuration of
// the service and the gateway.
//
// # The law
//
// What is not understood is refused, with the place where it is written. A key
// that nobody reads, a key that is there twice, a second document, a number
// where a text has to be, a duration without a unit, a value that is missing:
// each is a [Fault] with line and column, the key, the value, and what it should
// be.
//
// A file costs little to refuse. Its size, its marks and its nesting are bounded
// before it is parsed, the keys of a mapping because the parser takes quadratic
// time for them, and the nodes that its aliases stand for before anything is
// decoded. So a file of any content is read in less than a second and a hundred
// megabytes.
package yamldoc
