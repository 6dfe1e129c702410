// Package yamldoc reads YAML files that people write: the settings and tests of policy stores, and
// the configuration of the service and the gateway.
//
// # Invariant
//
// Nothing is ignored. An unknown key, a duplicate key, a second document, a number in place of a
// text, a duration without a unit or a missing value is a [Fault]. It has line and column, the key,
// the value, and what the value should be.
//
// A file is cheap to refuse. Limits on size, indicator characters, nesting and keys of a mapping
// apply before parsing, because the parser takes quadratic time. The limit on nodes applies, with
// aliases expanded, before decoding. So any file is read in less than a second and 100 MB.
package yamldoc
