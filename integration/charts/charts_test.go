// Package charts validates the recipes for Kubernetes and Docker Compose with the types and the
// loader of those projects. It is a module of its own, so that Junction does not require theirs.
package charts

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"helm.sh/helm/v3/pkg/chart"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write kubernetes.yaml again")

const recipes = "../../cmd/junction/deploy"

// render returns what helm makes of the chart.
func render(t *testing.T, values map[string]any) string {
	t.Helper()
	c, err := chartloader.Load(filepath.Join(recipes, "helm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "junction", Namespace: "default"},
		chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	return mustRender(t, c, all)
}

func mustRender(t *testing.T, c *chart.Chart, values chartutil.Values) string {
	t.Helper()
	files, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimLeft(files["junction/templates/junction.yaml"], "\n")
}

// objects decodes the documents strictly: a key that Kubernetes does not know is an error.
func objects(t *testing.T, text string) (all map[string]any) {
	t.Helper()
	all = map[string]any{}
	for _, document := range strings.Split(text, "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"v1 ConfigMap": &corev1.ConfigMap{}, "v1 Service": &corev1.Service{},
			"apps/v1 Deployment": &appsv1.Deployment{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
			"networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{}}[head.APIVersion+" "+head.Kind]
		if into == nil {
			t.Fatalf("there is no %s %s", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		all[head.Kind] = into
	}
	return all
}

// TestOperateRecipeOfKubernetes: the chart renders to kubernetes.yaml, its objects are those of
// Kubernetes, and they fit together.
func TestOperateRecipeOfKubernetes(t *testing.T) {
	text, file := render(t, nil), filepath.Join(recipes, "kubernetes.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != text {
		t.Errorf("kubernetes.yaml is not what the chart renders (%v): write it again with -update", err)
	}
	all := objects(t, text)
	d := all["Deployment"].(*appsv1.Deployment)
	c := d.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if ports[probe.HTTPGet.Port.StrVal] != 8421 {
			t.Errorf("a probe asks the port %s of %v, want that of admin", probe.HTTPGet.Port.StrVal, ports)
		}
	}
	if s := all["Service"].(*corev1.Service); ports[s.Spec.Ports[0].TargetPort.StrVal] != 8420 {
		t.Errorf("the service leads to %+v of %v, want the port of listen", s.Spec.Ports, ports)
	}
	volumes := map[string]bool{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	labels := d.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"deployment": d.Spec.Selector.MatchLabels,
		"service":    all["Service"].(*corev1.Service).Spec.Selector,
		"budget":     all["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"policy":     all["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 {
			t.Errorf("the %s selects everything", what)
		}
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("the %s selects %s=%s, and the pods have %v", what, k, v, labels)
			}
		}
	}
	policy := all["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	if in := policy.Spec.Ingress; ports["replicas"] != 8422 || len(in) != 2 || in[1].Ports[0].Port.StrVal != "replicas" ||
		len(in[1].From[0].PodSelector.MatchLabels) == 0 {
		t.Errorf("the pods cannot reach each other at %v, or others can: %+v", ports, in)
	}
	if e := c.Env[0]; e.Name != "POD_IP" || e.ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("the address of the pod is not in its environment: %+v", c.Env)
	}
	config := all["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]
	for _, want := range []string{"listen: 0.0.0.0:8420", "admin: 0.0.0.0:8421", "/etc/junction/secret/SESSION_KEY",
		"advertise: ${POD_IP}:8422", "listen: 0.0.0.0:8422"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, config)
		}
	}
}

// TestOperateRecipeOfKubernetesWithValues: values replace what the chart has.
func TestOperateRecipeOfKubernetesWithValues(t *testing.T) {
	text := render(t, map[string]any{"image": "example.com/j:1", "config": map[string]any{"upstreams": map[string]any{
		"more": map[string]any{"url": "https://more.example.com/mcp"}}}})
	all := objects(t, text)
	if image := all["Deployment"].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image; image != "example.com/j:1" {
		t.Errorf("the image is %s", image)
	}
	if config := all["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]; !strings.Contains(config, "https://more.example.com/mcp") {
		t.Errorf("the configuration lacks the upstream:\n%s", config)
	}
}

// TestOperateRecipeOfCompose loads the file as Docker Compose does.
func TestOperateRecipeOfCompose(t *testing.T) {
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  recipes,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(recipes, "compose.yaml")}},
		Environment: map[string]string{"POSTGRES_PASSWORD": "a", "IDP_SECRET": "b", "JUNCTION_MASTER_KEYS": "c"},
	}, func(o *loader.Options) { o.SetProjectName("junction", true) })
	if err != nil {
		t.Fatal(err)
	}
	for name, ports := range map[string]int{"junction": 0, "caddy": 2, "postgres": 0} {
		s, ok := project.Services[name]
		if !ok || len(s.Ports) != ports {
			t.Errorf("the service %s publishes %d ports (%t), want %d", name, len(s.Ports), ok, ports)
		}
	}
	if to := project.Services["caddy"].Environment["JUNCTION"]; to == nil || *to != "junction:8420" {
		t.Errorf("Caddy leads to %v", to)
	}
}
