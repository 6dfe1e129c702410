// Package cedarsyntax reads the text and the syntax of Cedar policies. It does not know
// entities, schemas of a store or settings.
package cedarsyntax
