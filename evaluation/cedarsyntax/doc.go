// Package cedarsyntax reads the text and the syntax of Cedar policies. It knows no
// entities, no schema of a store and no settings.
//
// [Scan] cuts a file into statements within limits, before the Cedar parser sees
// any: the parser recurses without a bound. [Tokenize] and [Tokens] find places in
// the text of a statement. [Conjunct] and [ScopeOf] take a parsed policy apart.
//
// cedar-go and the official engine differ in a few places. [Normalize] changes a
// policy so that both decide alike, and [Incompatible] refuses one where they
// cannot.
package cedarsyntax
