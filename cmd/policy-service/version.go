package main

import (
	"fmt"
	"runtime/debug"
)

// version is set by the Makefile's build.
var version = "dev"

type versionCmd struct{}

func (versionCmd) Run() error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		_, err := fmt.Println("policy-service", version)
		return err
	}
	_, err := fmt.Println("policy-service", version, info.GoVersion)
	return err
}
