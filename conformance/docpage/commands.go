package docpage

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Commands has a section for each command of a program: what it does, its usage,
// its arguments and flags. Of the flags for which skip is true it has note
// instead.
func Commands(model *kong.Application, skip func(*kong.Flag) bool, note string) string {
	var b strings.Builder
	for _, command := range model.Leaves(true) {
		usage := strings.TrimSpace(strings.TrimPrefix(command.Summary(), command.Path()))
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n    %s %s\n\n", strings.TrimPrefix(command.FullPath(), model.Name+" "), command.Help, command.FullPath(), usage)
		var rows [][]string
		for _, argument := range command.Positional {
			rows = append(rows, []string{"`" + argument.Name + "`", "", escape(argument.Help)})
		}
		skipped := false
		for _, flag := range command.Flags {
			switch {
			case flag.Name == "help":
			case skip(flag):
				skipped = true
			default:
				rows = append(rows, []string{flagName(flag), Variables(flag), FlagHelp(flag)})
			}
		}
		if len(rows) > 0 {
			b.WriteString(Table([]string{"argument or flag", "variable", "meaning"}, rows))
		}
		if skipped {
			b.WriteString("\n" + note + "\n")
		}
	}
	return b.String()
}

func flagName(flag *kong.Flag) string {
	if flag.IsBool() || flag.PlaceHolder == "" {
		return "`--" + flag.Name + "`"
	}
	return "`--" + flag.Name + "=" + flag.PlaceHolder + "`"
}

// Variables lists the environment variables of a flag.
func Variables(flag *kong.Flag) string {
	if len(flag.Envs) == 0 {
		return ""
	}
	return "`" + strings.Join(flag.Envs, "`, `") + "`"
}

// FlagHelp is the help of a flag as Markdown.
func FlagHelp(flag *kong.Flag) string { return escape(flag.Help) }

// escape keeps Markdown from finding emphasis and tags in a text.
func escape(text string) string { return strings.NewReplacer("*", `\*`, "<", "&lt;").Replace(text) }
