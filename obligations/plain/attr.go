package plain

import "log/slog"

// Attr is a slog.HandlerOptions.ReplaceAttr that escapes texts and errors as [Lines] does.
func Attr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Lines(v))
	case error:
		a.Value = slog.StringValue(Lines(v.Error()))
	case []string:
		shown := make([]string, len(v))
		for i, text := range v {
			shown[i] = Lines(text)
		}
		a.Value = slog.AnyValue(shown)
	}
	return a
}
