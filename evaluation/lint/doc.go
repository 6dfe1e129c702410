// Package lint warns about valid parts of a policy store that are rarely intended. These are policies
// that never or always apply, permits without effect, unknown annotations, and names that no entity,
// schema, setting or test has.
package lint
