package notify

import (
	"regexp"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/policy-service/policy-service/obligations/plain"
)

// maxValue is the maximum length in runes of one value in a message.
const maxValue = 128

// inert returns a value that others wrote, so that no mail program or chat acts on it. It escapes, as
// [plain.Text] does, invisible characters, the @ of a mention, the beginning of an encoded word
// (RFC 2047), and what would become a link: the slashes of a URL, and the last dot of a domain name.
func inert(value string) string {
	return withoutLinks(plain.Text(plain.Cut(value, maxValue)))
}

// inertMembers is inert for a line of several values, which [plain.Members] has made.
func inertMembers(line string) string {
	return withoutLinks(strings.Join(strings.Fields(plain.Lines(line)), " "))
}

func withoutLinks(value string) string {
	value = strings.NewReplacer("//", `\u{002F}\u{002F}`, "=?", `=\u{003F}`).Replace(value)
	value = www.ReplaceAllString(value, `$1\u{002E}`)
	value = mention.ReplaceAllString(value, `$1\u{0040}`)
	value = address.ReplaceAllStringFunc(value, func(s string) string { return strings.ReplaceAll(s, ":", `\u{003A}`) })
	return domain.ReplaceAllStringFunc(value, withoutDomain)
}

var (
	mention = regexp.MustCompile(`(^|[^\pL\pN_.+-])@`)
	address = regexp.MustCompile(`(?i)\b(mailto|tel|sms|javascript|data|file):`)
	www     = regexp.MustCompile(`(?i)\b(www)\.`)
	domain  = regexp.MustCompile(`[\pL\pN_-]+(\.[\pL\pN_-]+)+`)
)

// withoutDomain escapes the last dot of a name whose end is a public suffix.
func withoutDomain(name string) string {
	ascii, err := idna.Punycode.ToASCII(strings.ToLower(name))
	if err != nil {
		ascii = strings.ToLower(name)
	}
	suffix, public := publicsuffix.PublicSuffix(ascii)
	if !public && !strings.Contains(suffix, ".") {
		return name
	}
	last := strings.LastIndexByte(name, '.')
	return name[:last] + `\u{002E}` + name[last+1:]
}

// codeSpan returns an inert value as a code span of Slack or Mattermost, in which neither has markup.
func codeSpan(value string) string {
	return "`" + strings.NewReplacer("`", `\u{0060}`, "<", `\u{003C}`, ">", `\u{003E}`, "&", `\u{0026}`).Replace(value) + "`"
}

// quoted returns an inert value in quotation marks, so that it cannot pass for the text around it.
func quoted(value string) string { return `"` + strings.ReplaceAll(value, `"`, `\u{0022}`) + `"` }

// inertName returns an inert value in quotation marks, unless it is one word.
func inertName(name string) string {
	if plain.IsSimple(name) {
		return inert(name)
	}
	return quoted(inert(name))
}
