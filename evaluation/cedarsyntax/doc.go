// Package cedarsyntax reads the text and the syntax of Cedar policies. It does not know
// entities, schemas of a store or settings.
//
// [Scan] splits a file into statements and enforces limits before the Cedar parser runs, because
// the parser recurses without a limit. [Tokenize] and [Tokens] find positions in the text of a
// statement. [Conjunct] and [ScopeOf] split a parsed policy.
//
// cedar-go and the official engine differ in a few cases. [Normalize] rewrites a policy so that
// both decide alike, and [Incompatible] rejects a policy where they cannot.
package cedarsyntax
