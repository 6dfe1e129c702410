package access

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// Welcome returns what the gateway says to the caller of an initialize or a
// server/discover at an endpoint over these servers: its level. It returns nil if the
// operator has it say nothing, or if the policies do not tell.
func (s *Service) Welcome(ctx context.Context, c *enforce.Call, servers []string) jsontext.Value {
	if !s.cfg.Welcome {
		return nil
	}
	level := enforce.LevelUnknown
	for _, server := range servers {
		of, err := s.cfg.Level(ctx, c, server)
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "the level of a caller is not known", "server", server, "request_id", c.RequestID, "error", err)
		}
		if err != nil || of == enforce.LevelUnknown {
			return nil
		}
		if level != enforce.LevelRestricted {
			level = of
		}
	}
	text, err := json.Marshal(struct {
		Level       enforce.Level `json:"tokenType"`
		Participant string        `json:"participantId"`
	}{level, c.Caller.Subject.ID})
	if err != nil || level == enforce.LevelUnknown {
		return nil
	}
	return text
}
