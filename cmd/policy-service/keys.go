package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

type keysCmd struct {
	New keysNewCmd `cmd:"" help:"Create an API key, and print its digest for the configuration."`
}

type keysNewCmd struct {
	ID   string `arg:"" help:"Name of the caller in the decision log."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Run prints a key, which is stored nowhere, and its configuration.
func (c *keysNewCmd) Run() error {
	key := "psk_" + rand.Text() + rand.Text()
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
	if c.JSON {
		return printJSON(map[string]string{"id": c.ID, "key": key, "sha256": digest})
	}
	_, err := fmt.Printf("# The key, for the caller alone: Authorization: Bearer %s\nauth:\n  api_keys:\n    - id: %s\n      sha256: %s\n", key, c.ID, digest)
	return err
}
