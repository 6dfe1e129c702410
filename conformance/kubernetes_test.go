package conformance_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/policy-service/policy-service/conformance/process"
)

// The manifests serve, ask callers who they are, and are ready where probes
// look; a change of the ConfigMap comes into force.
func TestKubernetes(t *testing.T) {
	all := manifests(t)
	pod := all["StatefulSet/policy-service"].Spec.Template.Spec
	settings := all["ConfigMap/policy-service-settings"]
	dir, state, certificate := t.TempDir(), t.TempDir(), newCertificate(t)
	settings.Data["config.yaml"] = here(settings.Data["config.yaml"], dir, state)
	mount(t, all, pod.Volumes[0], certificate, dir)
	s := run(t, strings.ReplaceAll(strings.Join(pod.Containers[0].Args, " "), settingsDir, dir))

	if code, body := s.ask(t, "", reading); code != http.StatusUnauthorized {
		t.Errorf("without a key: %d %s", code, body)
	}
	if code, body := s.ask(t, gatewayKey, reading); code != http.StatusOK || body != decision(true) {
		t.Errorf("with a key: %d %s", code, body)
	}
	for _, p := range []probe{pod.Containers[0].StartupProbe, pod.Containers[0].LivenessProbe, pod.Containers[0].ReadinessProbe} {
		if code := s.statusAt(t, p.HTTPGet.Path); p.HTTPGet.Port != "admin" || code != http.StatusOK {
			t.Errorf("the probe of %s at port %s: %d", p.HTTPGet.Path, p.HTTPGet.Port, code)
		}
	}
	if code := s.statusAt(t, "/admin/v1/log/export"); code != http.StatusUnauthorized {
		t.Errorf("the log without a key: %d", code)
	}

	policies := all["ConfigMap/policy-service-policies"].Data
	policies["tools.cedar"] = strings.Replace(policies["tools.cedar"], "tool_reader", "tool_nobody", 1)
	mount(t, all, pod.Volumes[0], certificate, dir)
	process.Eventually(t, "the ConfigMap's change is in force", func() bool {
		_, body := s.ask(t, gatewayKey, reading)
		return body == decision(false)
	})
}

// The policies of the ConfigMap have no fault and no warning, and their tests
// pass and try every policy.
func TestKubernetesPolicies(t *testing.T) {
	all := manifests(t)
	dir := t.TempDir()
	mount(t, all, all["StatefulSet/policy-service"].Spec.Template.Spec.Volumes[0], nil, dir)
	store := filepath.Join(dir, "policies")
	for _, args := range [][]string{{"validate", "--strict", store}, {"test", "--fail-under", "100", store}} {
		if out, err := policyService(t, args...); err != nil {
			t.Errorf("policy-service %s: %v\n%s", args[0], err, out)
		}
	}
}

// Ports and volumes of the manifests are those of the settings.
func TestKubernetesNames(t *testing.T) {
	all := manifests(t)
	settings := all["ConfigMap/policy-service-settings"].Data["config.yaml"]
	c := all["StatefulSet/policy-service"].Spec.Template.Spec.Containers[0]
	named := make(map[string]bool)
	for _, p := range c.Ports {
		named[p.Name] = true
		if p.ContainerPort == "" || !strings.Contains(settings, ":"+p.ContainerPort+"\n") {
			t.Errorf("nothing listens on port %s", p.ContainerPort)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.Contains([]string{settingsDir, stateDir, "/tmp"}, m.MountPath) {
			t.Errorf("the settings do not name %s", m.MountPath)
		}
	}
	for name, m := range all {
		for _, p := range m.Spec.Ports {
			if !named[p.TargetPort] {
				t.Errorf("%s: no port %s", name, p.TargetPort)
			}
		}
	}
}

// An object is what these tests look at of a Kubernetes object.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []container
				Volumes    []volume
			}
		}
		Ports []struct { // of a Service
			TargetPort string `yaml:"targetPort"`
		}
	}
}

type container struct {
	Args           []string
	Env            []struct{ Name, Value string }
	Resources      struct{ Limits struct{ Memory string } }
	Ports          []containerPort
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	VolumeMounts   []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type containerPort struct {
	Name          string
	ContainerPort string `yaml:"containerPort"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

type volume struct {
	Projected struct{ Sources []source }
}

type source struct {
	ConfigMap projection `yaml:"configMap"`
	Secret    projection
}

type projection struct {
	Name  string
	Items []struct{ Key, Path string }
}

// manifests are the objects of deploy/kubernetes by kind and name.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	files, err := filepath.Glob("../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	all := make(map[string]object)
	for _, file := range files {
		decoder := yaml.NewDecoder(strings.NewReader(read(t, file)))
		for {
			var m object
			err := decoder.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all[m.Kind+"/"+m.Metadata.Name] = m
		}
	}
	return all
}

// mount writes the projected volume as a kubelet does: into a directory that
// the link ..data names, with links to what is in there. Mounting again swaps
// the link.
func mount(t *testing.T, all map[string]object, v volume, secrets map[string]string, dir string) {
	t.Helper()
	data, err := os.MkdirTemp(dir, "..data_")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Projected.Sources {
		for _, item := range s.ConfigMap.Items {
			text, ok := all["ConfigMap/"+s.ConfigMap.Name].Data[item.Key]
			if !ok {
				t.Fatalf("the ConfigMap %s has no key %s", s.ConfigMap.Name, item.Key)
			}
			place(t, filepath.Join(data, item.Path), text)
		}
		for _, item := range s.Secret.Items {
			place(t, filepath.Join(data, item.Path), secrets[item.Key])
		}
	}
	link(t, filepath.Base(data), filepath.Join(dir, "..data"))
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		link(t, filepath.Join("..data", entry.Name()), filepath.Join(dir, entry.Name()))
	}
}

// link makes a symbolic link, in one step where there was another.
func link(t *testing.T, to, from string) {
	t.Helper()
	if err := errors.Join(os.Symlink(to, from+"_tmp"), os.Rename(from+"_tmp", from)); err != nil {
		t.Fatal(err)
	}
}
