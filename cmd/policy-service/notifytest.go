package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/policy-service/policy-service/pdp"
)

// A notifyTestCmd sends test messages.
type notifyTestCmd struct {
	Config configFile `help:"Configuration file of serve, with console.notify." required:"" placeholder:"FILE"`
	Notify notifyFlag `name:"console.notify" help:"The same as YAML, in place of the file's." placeholder:"YAML"`
	To     string     `help:"Address of the recipient, for ways that send mail." placeholder:"ADDRESS"`
	JSON   bool       `name:"json" help:"Print JSON, one object a line."`
	Ways   []string   `arg:"" optional:"" help:"Names of ways. Default: all."`
}

// Help explains the command.
func (c *notifyTestCmd) Help() string {
	return "A test message says that nothing waits. The command prints one line for each way: sent, or what went wrong. It exits with 1 if a way failed."
}

// A notifyResult is the result of one test message.
type notifyResult struct {
	Way   string `json:"way"`
	Sent  bool   `json:"sent"`
	Error string `json:"error,omitzero"`
}

// Run sends the messages.
func (c *notifyTestCmd) Run(ctx context.Context) error {
	if c.Notify.Off() {
		return errors.New("the configuration has no console.notify: nobody is notified")
	}
	failed, unprinted := 0, error(nil)
	err := pdp.SendTestMessage(ctx, c.Notify.Settings, c.Ways, c.To, func(way string, err error) {
		result := notifyResult{Way: way, Sent: err == nil}
		if err != nil {
			failed, result.Error = failed+1, err.Error()
		}
		unprinted = errors.Join(unprinted, c.print(result))
	})
	if failed > 0 {
		err = fmt.Errorf("%d of the ways failed", failed)
	}
	return errors.Join(err, unprinted)
}

func (c *notifyTestCmd) print(r notifyResult) error {
	if c.JSON {
		return printJSON(r)
	}
	text := "sent"
	if !r.Sent {
		text = "failed: " + r.Error
	}
	_, err := fmt.Printf("%s: %s\n", r.Way, text)
	return err
}
