// Package tuning sets the runtime of programs that serve.
//
// The law it keeps: the environment has precedence.
package tuning

import (
	"os"
	"runtime"
	"runtime/debug"
)

// gcPercent makes a server collect garbage a quarter as often as the default: it
// keeps little memory and discards much. GOMEMLIMIT bounds the memory.
const gcPercent = 400

// Serve sets the runtime of a server that waits for the disk before it answers.
// GOGC and GOMAXPROCS override it.
func Serve() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // a goroutine that waits for the disk nearly always holds one
	}
}
