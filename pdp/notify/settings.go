package notify

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/pdp/webhook"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Settings configure the notifications of people. The zero value notifies nobody. Each element of a list
// is a way, which approval templates name.
type Settings struct {
	EmailAttribute string   `yaml:"email_attribute,omitempty"`           // attribute of an approver's entity that has the address; "" means email
	Arguments      bool     `yaml:"arguments,omitempty"`                 // messages have the arguments of the call, masked as in the log
	PerMinute      int      `yaml:"per_minute,omitempty"`                // messages that a recipient gets in a minute; 0 means 5
	PrivateHosts   []string `yaml:"private_hosts,omitempty" list:"some"` // hosts of URLs whose address is not public, beside this host in url

	Mail       []Mail    `yaml:"mail,omitempty" list:"some"`       // to the addresses of those who may decide
	Slack      []Channel `yaml:"slack,omitempty" list:"some"`      // incoming webhooks
	Mattermost []Channel `yaml:"mattermost,omitempty" list:"some"` // incoming webhooks
	Ntfy       []Topic   `yaml:"ntfy,omitempty" list:"some"`
	Webhook    []Webhook `yaml:"webhook,omitempty" list:"some"`
}

// Mail is an SMTP server.
type Mail struct {
	Name         string `yaml:"name"`
	Host         string `yaml:"host"`                    // host or host:port; the default port is 587, or 465 for tls
	From         string `yaml:"from"`                    // address, or Name <address>
	TLS          string `yaml:"tls,omitempty"`           // starttls, tls or, for this host only, none; "" means starttls
	CAFile       string `yaml:"ca_file,omitempty"`       // PEM certificates that are trusted instead of the system's
	Username     string `yaml:"username,omitempty"`      // "" means no authentication
	PasswordFile string `yaml:"password_file,omitempty"` // goes together with username
}

// A Location is a URL in a file or in the environment, because it may be a secret.
type Location struct {
	URL     string `yaml:"url,omitempty"`      // env:NAME, or a URL that is no secret
	URLFile string `yaml:"url_file,omitempty"` // instead of url
}

// A Channel is an incoming webhook of Slack or Mattermost.
type Channel struct {
	Name     string `yaml:"name"`
	Location `yaml:",inline"`
}

// A Topic is a topic of an ntfy server: https://ntfy.example.com/TOPIC.
type Topic struct {
	Name      string `yaml:"name"`
	Location  `yaml:",inline"`
	TokenFile string `yaml:"token_file,omitempty"` // access token
}

// A Webhook gets JSON with the signature of callbacks.
type Webhook struct {
	Name       string `yaml:"name"`
	Location   `yaml:",inline"`
	SecretFile string `yaml:"secret_file"` // at least 32 bytes
}

// Values of Mail.TLS.
const (
	tlsStart = "starttls"
	tlsAlone = "tls"
	tlsNone  = "none"
)

// minSecret is the minimum length of a secret in bytes.
const minSecret = 32

// Off reports whether nobody is notified.
func (s *Settings) Off() bool { return len(s.names()) == 0 }

// names lists the names of all ways.
func (s *Settings) names() (names []string) {
	for _, w := range s.all() {
		names = append(names, w.name)
	}
	return names
}

// A configured is a way with its place in the settings.
type configured struct {
	name  string
	path  []string
	check func() error // setting errors below path
	read  func() error // those of files and variables
}

// all lists the ways in the order of their kinds.
func (s *Settings) all() (all []configured) {
	add := func(kind string, n int, name string, check, read func() error) {
		all = append(all, configured{name, []string{kind, strconv.Itoa(n)}, check, read})
	}
	for n := range s.Mail {
		add("mail", n, s.Mail[n].Name, s.Mail[n].check, s.Mail[n].checkFiles)
	}
	for n := range s.Slack {
		add("slack", n, s.Slack[n].Name, s.Slack[n].checkSecret, s.Slack[n].checkURL)
	}
	for n := range s.Mattermost {
		add("mattermost", n, s.Mattermost[n].Name, s.Mattermost[n].checkSecret, s.Mattermost[n].checkURL)
	}
	for n := range s.Ntfy {
		add("ntfy", n, s.Ntfy[n].Name, s.Ntfy[n].check, s.Ntfy[n].checkFiles)
	}
	for n := range s.Webhook {
		add("webhook", n, s.Webhook[n].Name, s.Webhook[n].check, s.Webhook[n].checkFiles)
	}
	return all
}

var wayName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Check reports all faults, each as a [yamldoc.SettingError]. It accesses neither files nor the
// environment.
func (s *Settings) Check() error { return s.check(func(w configured) error { return w.check() }) }

// checkSecrets reports all faults, also in what files and variables hold.
func (s *Settings) checkSecrets() error {
	return s.check(func(w configured) error { return errors.Join(w.check(), w.read()) })
}

func (s *Settings) check(check func(configured) error) error {
	var errs []error
	var names []string
	for _, w := range s.all() {
		switch {
		case !wayName.MatchString(w.name):
			errs = append(errs, wrong(fmt.Sprintf("no way can be called %q: write small letters, digits, - and _", w.name), append(slices.Clone(w.path), "name")...))
		case slices.Contains(names, w.name):
			errs = append(errs, wrong(fmt.Sprintf("there is another way %q", w.name), append(slices.Clone(w.path), "name")...))
		}
		names = append(names, w.name)
		errs = append(errs, yamldoc.Below(check(w), w.path...))
	}
	for n, host := range s.PrivateHosts {
		if strings.ContainsAny(host, "/:* ") || host == "" {
			errs = append(errs, wrong("must be the name of a host, without scheme and port", "private_hosts", strconv.Itoa(n)))
		}
	}
	if len(names) == 0 && (len(s.PrivateHosts) > 0 || s.Arguments || s.PerMinute != 0 || s.EmailAttribute != "") {
		errs = append(errs, wrong("names no way to notify people: add one of mail, slack, mattermost, ntfy, webhook"))
	}
	return errors.Join(errs...)
}

// wrong returns a fault of the setting at path.
func wrong(reason string, path ...string) error {
	return &yamldoc.SettingError{Path: path, Reason: reason}
}

func (m *Mail) check() error {
	var errs []error
	host, _, err := m.address()
	if err != nil {
		errs = append(errs, wrong(err.Error(), "host"))
	}
	if _, err := mail.ParseAddress(m.From); err != nil {
		errs = append(errs, wrong("is not an address, as in policy-service@example.com", "from"))
	}
	switch {
	case !slices.Contains([]string{"", tlsStart, tlsAlone, tlsNone}, m.TLS):
		errs = append(errs, wrong(fmt.Sprintf("%q is not one of %s, %s, %s", m.TLS, tlsStart, tlsAlone, tlsNone), "tls"))
	case m.TLS == tlsNone && !jwks.IsThisHost(host):
		errs = append(errs, wrong("none is for a server on this host: messages and the password would cross the network in clear", "tls"))
	}
	if (m.Username == "") != (m.PasswordFile == "") {
		errs = append(errs, wrong("goes together with username: give both or neither", "password_file"))
	}
	return errors.Join(errs...)
}

func (m *Mail) checkFiles() error {
	_, unread := readSecret(m.PasswordFile)
	_, untrusted := m.trusted()
	return errors.Join(at(unread, "password_file"), at(untrusted, "ca_file"))
}

// address returns the host and the port of the server.
func (m *Mail) address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(m.Host)
	if err != nil {
		host, text = m.Host, map[bool]string{true: "465", false: "587"}[m.TLS == tlsAlone]
	}
	port, err = strconv.Atoi(text)
	if host == "" || err != nil || port < 1 || port > 65535 || strings.ContainsAny(host, "/ ") {
		return "", 0, errors.New("must be HOST or HOST:PORT")
	}
	return host, port, nil
}

// check reports faults of the location of a service, which need not be a secret.
func (l *Location) check() error { return l.checkAs(false) }

// checkSecret reports faults of a location that is a secret.
func (l *Location) checkSecret() error { return l.checkAs(true) }

func (l *Location) checkAs(secret bool) error {
	switch isEnv := strings.HasPrefix(l.URL, envPrefix); {
	case (l.URL == "") == (l.URLFile == ""):
		return wrong("give either url: env:NAME or url_file: FILE", l.key())
	case secret && l.URL != "" && !isEnv:
		return wrong("is a secret: write it to a file and name that in url_file, or write env:NAME", l.key())
	case l.URL != "" && !isEnv:
		return at(webhook.CheckURL(l.URL), l.key())
	}
	return nil
}

// key returns the key that has the location.
func (l *Location) key() string {
	if l.URLFile != "" {
		return "url_file"
	}
	return "url"
}

func (l *Location) checkURL() error {
	_, err := l.read()
	return at(err, l.key())
}

// thisHost lists the names of this host in URLs that the settings themselves have.
func (s *Settings) thisHost() (names []string) {
	for _, l := range s.locations() {
		if u, err := url.Parse(l.URL); err == nil && u.Scheme == "http" && jwks.IsThisHost(u.Hostname()) {
			names = append(names, u.Hostname())
		}
	}
	return names
}

// locations lists the locations that may be in the settings themselves.
func (s *Settings) locations() (all []Location) {
	for _, t := range s.Ntfy {
		all = append(all, t.Location)
	}
	for _, w := range s.Webhook {
		all = append(all, w.Location)
	}
	return all
}

// envPrefix begins the name of a variable of the environment.
const envPrefix = "env:"

// read returns the URL.
func (l *Location) read() (text string, err error) {
	text = l.URL
	if name, isEnv := strings.CutPrefix(l.URL, envPrefix); isEnv {
		if text = os.Getenv(name); text == "" {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
	}
	if l.URLFile != "" {
		if text, err = readSecret(l.URLFile); err != nil {
			return "", err
		}
	}
	return text, webhook.CheckURL(text)
}

func (t *Topic) checkFiles() error {
	_, _, invalid := t.topic()
	_, unread := readSecret(t.TokenFile)
	return errors.Join(at(invalid, t.key()), at(unread, "token_file"))
}

// topic returns the URL of the server and the name of the topic.
func (t *Topic) topic() (server, name string, err error) {
	text, err := t.read()
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", "", errors.New("is not a URL")
	}
	i := strings.LastIndexByte(u.Path, '/')
	if i < 0 || u.Path[i+1:] == "" || u.RawQuery != "" {
		return "", "", errors.New("must have the form https://SERVER/TOPIC")
	}
	name = u.Path[i+1:]
	u.Path = u.Path[:i+1]
	return u.String(), name, nil
}

func (w *Webhook) check() error {
	var missing error
	if w.SecretFile == "" {
		missing = wrong("is required: the secret signs the requests", "secret_file")
	}
	return errors.Join(w.Location.check(), missing)
}

func (w *Webhook) checkFiles() error {
	_, err := w.secret()
	return errors.Join(w.checkURL(), at(err, "secret_file"))
}

// secret returns the key of signatures.
func (w *Webhook) secret() (string, error) {
	secret, err := readSecret(w.SecretFile)
	if err == nil && len(secret) < minSecret {
		err = fmt.Errorf("%s holds less than %d bytes", w.SecretFile, minSecret)
	}
	return secret, err
}

// at returns err as the fault of a setting.
func at(err error, key string) error {
	if err == nil {
		return nil
	}
	return wrong(err.Error(), key)
}

// readSecret reads a file, without surrounding blanks. It returns "" if no file is named.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return secret, nil
}
