package pdp_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

// syslogMessage is a message as RFC 5424 has it, of facility 13 and severity 6.
var syslogMessage = regexp.MustCompile(`^<110>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (\S{1,255}) policy-service \d+ checkpoint - (\{.*\})$`)

// A syslogServer collects messages.
type syslogServer struct {
	url      string
	messages chan string
}

// syslogServers are servers of every transport, and who has signed the
// certificate of that with TLS.
func syslogServers(t *testing.T) (all map[string]*syslogServer, roots *x509.CertPool) {
	t.Helper()
	web := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	roots = x509.NewCertPool()
	roots.AddCert(web.Certificate())

	all = make(map[string]*syslogServer)
	packets := func(network, address, url string) {
		listener, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		s := &syslogServer{url + listener.LocalAddr().String(), make(chan string, 100)}
		all[network] = s
		go func() {
			for buffer := make([]byte, 64<<10); ; {
				n, _, err := listener.ReadFrom(buffer)
				if err != nil {
					return
				}
				s.messages <- string(buffer[:n])
			}
		}()
	}
	streams := func(name string, listener net.Listener, err error, url string) {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		s := &syslogServer{url + listener.Addr().String(), make(chan string, 100)}
		all[name] = s
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go readCounted(connection, s.messages)
			}
		}()
	}
	dir := t.TempDir()
	packets("udp", "127.0.0.1:0", "udp://")
	packets("unixgram", filepath.Join(dir, "log"), "unix://")
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	streams("tcp", tcp, err, "tcp://")
	unix, err := net.Listen("unix", filepath.Join(dir, "stream"))
	streams("unix", unix, err, "unix://")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	streams("tls", secure, err, "tls://")
	return all, roots
}

// readCounted reads messages that have the count of their octets before them.
func readCounted(connection net.Conn, messages chan<- string) {
	defer connection.Close()
	for in := bufio.NewReader(connection); ; {
		var n int
		if _, err := fmt.Fscanf(in, "%d ", &n); err != nil {
			return
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return
		}
		messages <- string(text)
	}
}

// checkpointIn returns the checkpoint that a message has.
func checkpointIn(t *testing.T, message string, keys []string) *decisionlog.Checkpoint {
	t.Helper()
	parts := syslogMessage.FindStringSubmatch(message)
	if parts == nil {
		t.Fatalf("no message of RFC 5424: %q", message)
	}
	if at, err := time.Parse(time.RFC3339Nano, parts[1]); err != nil || time.Since(at) > time.Minute {
		t.Errorf("the time of %q: %v", message, err)
	}
	var kept struct {
		Note string `json:"note"`
	}
	if err := json.Unmarshal([]byte(parts[3]), &kept); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := decisionlog.ParseCheckpoint([]byte(kept.Note), keys)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint
}

// TestSyslog holds that a checkpoint goes by every transport, in the framing
// that is the transport's own.
func TestSyslog(t *testing.T) {
	state := t.TempDir()
	log, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	checkpoint, err := log.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	servers, roots := syslogServers(t)
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				if err := pdp.SendSyslog(t.Context(), server.url, roots, checkpoint); err != nil {
					t.Fatal(err)
				}
				if got := checkpointIn(t, <-server.messages, keysOf(t, state)); got.Head != checkpoint.Head {
					t.Errorf("the checkpoint is over %v, want %v", got.Head, checkpoint.Head)
				}
			}
		})
	}
	if err := pdp.SendSyslog(t.Context(), servers["tls"].url, nil, checkpoint); err == nil {
		t.Error("a server with a certificate that nobody has signed is believed")
	}
}

// TestSyslogSink holds that a service sends its checkpoints, the last of them
// over all that was answered.
func TestSyslogSink(t *testing.T) {
	servers, _ := syslogServers(t)
	server := servers["tcp"]
	s := start(t, pdp.Config{DecisionLog: pdp.LogConfig{CheckpointSyslog: server.url}})
	for range 5 {
		post(t, http.DefaultClient, s.main+"/access/v1/evaluation", aliceReads)
	}
	keys := keysOf(t, s.state)
	s.stop(t)
	for checkpointIn(t, <-server.messages, keys).Size != 6 {
	}
}

func TestSyslogURLs(t *testing.T) {
	for _, url := range []string{"logs.example.com", "http://logs.example.com", "tcp://", "unix://", "unix://dev/log", "tls://logs.example.com/x", "udp://h?a=b", "tcp://[::1"} {
		s := launch(t, pdp.Config{DecisionLog: pdp.LogConfig{CheckpointSyslog: url}})
		if s.main != "" || s.err == nil || !strings.Contains(s.err.Error(), "syslog server") {
			t.Errorf("%q: %v", url, s.err)
		}
	}
}
