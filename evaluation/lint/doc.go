// Package lint warns of what a policy store may contain but seldom means:
// policies that never apply or always do, permits without effect, annotations that
// mean nothing, and names that no entity, schema, setting or test has.
package lint
