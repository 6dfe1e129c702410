// Package child runs programs that the gateway starts, and everything that they start,
// as one group.
//
// The law it keeps: a program that the gateway ends leaves nothing behind. A package
// runner such as npx starts the server as a program of its own.
package child
