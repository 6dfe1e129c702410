package main

import (
	"context"
	"fmt"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/pdp"
)

// reread reads the command line of serve again, with the current configuration file.
func reread(ctx context.Context, command *kong.Context) (*pdp.Settings, error) {
	parser := newParser(ctx)
	if _, err := parser.Parse(command.Args); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	now := &pdp.Settings{}
	then := settings(command.Model)
	for i, flag := range settings(parser.Model) {
		value := flag.Target.Interface()
		switch value := value.(type) {
		case authFlag:
			now.Auth = value.Auth
		case oidcFlag:
			now.OIDC = value.settings()
		default:
			if !reflect.DeepEqual(value, then[i].Target.Interface()) {
				now.Restart = append(now.Restart, configKey(flag))
			}
		}
	}
	return now, nil
}
