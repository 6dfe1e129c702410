// Package console has the tests of the pages for people: Chromium, the program as it is built, and an
// OpenID provider.
package console
